"""Operations of kernels: scalars, bits, tiles, subscripts, streams. Each gives a value and writes its MLIR.

Imports `regions` (the state of a task that is compiled) and `model`; `statements` imports it.
"""
