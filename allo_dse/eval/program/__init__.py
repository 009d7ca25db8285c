"""Running programs: the network of a program or of any fold of it, its state, vendor kernels and recorded traces.

Imports `simulator`, `program` and `mapper`; the evaluators beside it import this package, never the other way.
"""
