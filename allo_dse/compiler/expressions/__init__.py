"""Operations of kernels: scalars, bits, tiles, subscripts, streams. Each gives a value and writes its MLIR.

Imports: common, compiler.model, compiler.program, compiler.regions, lang.
Imported by: compiler, compiler.statements.
"""
