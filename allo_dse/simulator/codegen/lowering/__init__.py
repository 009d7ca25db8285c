"""Passes from a task body's MLIR to functions that suspend in stream operations.

Imports: common, ir, simulator.codegen.run_time.
Imported by: backends, eval, mapper, simulator, simulator.codegen, simulator.engine, simulator.network.
"""
