"""From a region's source to tensors, streams and kernels, and the state of compiling one kernel.

Imports: common, frontend.model, lang, program.
Imported by: frontend, frontend.ops, frontend.schedule, frontend.statements.
"""
