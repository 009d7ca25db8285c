"""Modules that programs import as parts of `allo`; `allo_dse.lang.install` maps their names.

They hold nothing but names for programs: the front end reads programs as source and imports `lang` itself.

Imports: common, lang.
Imported by: compiler, lang.
"""
