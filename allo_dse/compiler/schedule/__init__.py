"""Schedules: rewrites of a task's body, each checked to keep the program's results.

`session` holds a program while it is rewritten and carries out one primitive after the other; `body` is one task's body
as MLIR; `find` knows loops and arrays by their names. The primitives: `reshape_loops` (split, reorder, fuse, tile),
`fusion` (compute_at), `buffers` (buffer_at, reuse_at), `directives` (what only code generators and cost models read).
`dependence` says which orders of iterations give the same results.

Imports: common, compiler, compiler.program, compiler.regions, lang.
Imported by: eval.
"""
