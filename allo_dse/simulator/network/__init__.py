"""Networks to run, as plain data: streams, tasks, nodes, operation tables, shared resources, their run-time image.

Imports: common, simulator.codegen.
Imported by: dashboard, drawing, eval, mapper, simulator, simulator.deadlock, simulator.engine, simulator.replay,
  simulator.steady, simulator.trace.
"""
