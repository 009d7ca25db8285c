"""Networks to run, as plain data: streams, tasks, nodes, operation tables, shared resources, their run-time image.

Imports: common, simulator.codegen, simulator.run_time.
Imported by: backends, dashboard, drawing, eval, mapper, simulator, simulator.depths, simulator.engine,
simulator.replay.
"""
