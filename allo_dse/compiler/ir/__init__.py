"""Loop nests, affine forms and constants of compiled task bodies.

Imports: common.
Imported by: backends, compiler, compiler.program, compiler.schedule, eval.
"""
