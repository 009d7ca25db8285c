"""Data of the front end: source files, MLIR text, compile-time values and diagnostics.

Imports: common, compiler.program, lang.
Imported by: allo_dse, backends, compiler, compiler.expressions, compiler.regions, compiler.statements, eval, networks,
tune.
"""
