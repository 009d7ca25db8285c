"""From a region's source to tensors, streams and kernels, and the state of compiling one kernel.

Imports: common, compiler.model, compiler.program, lang.
Imported by: compiler, compiler.expressions, compiler.schedule, compiler.statements.
"""
