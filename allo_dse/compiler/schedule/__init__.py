"""Schedules: rewrites of a task's body, each checked to keep the program's results.

`session` holds a program and applies one primitive after the other; `body` is one task's body as MLIR; `find` knows
loops and arrays by their names. The primitives: `loops` (split, reorder, fuse, tile, compute_at), `memories`
(buffer_at, reuse_at, reshape), `forward` and `streams` (to), `unfold` (unfold, outline). `printed` has the directives
that only code generators and cost models read.

Imports: common, compiler, compiler.ir, compiler.program, compiler.regions, lang.
Imported by: backends, eval, mapper.
"""
