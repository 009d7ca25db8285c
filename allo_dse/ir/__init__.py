"""The MLIR bindings (`bindings`, the one place that imports them), the `df` dialect, and compilation to machine code.

Knows nothing of programs, networks or devices; imports `errors` only. `simulator`, `backends` and `frontend` use it.
"""
