"""The run engine: executes networks by compiled code, records them, explains deadlocks and what held a run up.

Imports `network`, `steady` and `codegen`.
"""
