"""Operations of kernels: scalars, bits, tiles, subscripts, streams. Each gives a value and writes its MLIR.

Imports: common, frontend.model, frontend.regions, lang, program.
Imported by: frontend, frontend.statements.
"""
