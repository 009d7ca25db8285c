"""The MLIR bindings (`bindings`, the one place that imports them), the `df` dialect, and compilation to machine code.

`nest` and `linear` read a task's body as a plain tree of loops, operations and index arithmetic. Knows nothing of
programs, networks or devices; imports `errors` only. `simulator`, `backends` and `frontend` use it.
"""
