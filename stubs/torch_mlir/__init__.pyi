"""What allo-dse uses of MLIR's Python bindings, typed: neither `mlir` nor `torch_mlir` ships these types."""
