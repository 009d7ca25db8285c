"""The run engine: executes networks by compiled code, records them, explains deadlocks and what held a run up.

Imports: common, ir, simulator.codegen, simulator.deadlock, simulator.network, simulator.steady.
Imported by: allo_dse, dashboard, drawing, eval, mapper, simulator, simulator.replay, simulator.trace.
"""
