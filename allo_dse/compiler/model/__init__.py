"""What the front end works with: source files, text of MLIR, values known at compile time, diagnostics.

Imports: common, compiler.program, lang.
Imported by: allo_dse, backends, compiler, compiler.expressions, compiler.regions, compiler.statements, eval, networks,
  tune.
"""
