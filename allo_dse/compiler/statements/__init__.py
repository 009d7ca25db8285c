"""From statements and expressions of a kernel to operations: control flow, declarations, calls.

Imports: common, compiler.expressions, compiler.model, compiler.program, compiler.regions, lang.
Imported by: compiler.
"""
