"""Passes from a task body's MLIR to functions that suspend in stream operations; imports `run_time`."""
