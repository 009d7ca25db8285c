"""Modules that programs import as parts of `allo`; `allo_dse.lang.install` says which is which.

Nothing but names for programs: the front end reads programs as source and imports `lang` itself.

Imports: lang.
Imported by: compiler, lang.
"""
