"""The run engine: executes networks by compiled code, records them, explains deadlocks and what held a run up.

Imports: common, simulator, simulator.codegen, simulator.network, simulator.run_time.
Imported by: allo_dse, backends, dashboard, drawing, eval, simulator.replay.
"""
