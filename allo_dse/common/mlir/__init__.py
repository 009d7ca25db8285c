"""The MLIR bindings (`bindings`, the one place that imports them), the `df` dialect, and compilation to machine code.

`jit` makes object files, `machine_code` calls into them, `kept` keeps on disk what was compiled. `nest` and `linear`
read a task's body as a plain tree of loops, operations and index arithmetic. Knows nothing of programs, networks or
devices.

Imports: common.
Imported by: backends, compiler, eval, networks, simulator.
"""
