"""What the front end works with: source files, text of MLIR, values known at compile time, diagnostics.

Imports: common, lang, program.
Imported by: backends, dnn, eval, frontend, frontend.ops, frontend.regions, frontend.statements, tune.
"""
