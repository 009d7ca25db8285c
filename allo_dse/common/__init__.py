"""Helpers that every package may import; they import nothing else of allo-dse.

Exceptions with a hint (`errors`), type aliases (`records`), and public names that are imported when first used
(`exports`).

Imports: nothing of allo_dse.
Imported by: allo_dse, backends, cli, compiler, dashboard, device, drawing, eval, lang, mapper, networks, simulator,
space, tune.
"""
