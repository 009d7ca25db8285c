"""Code generation: task bodies become coroutines (`lowering`), the scheduler and FIFOs become code (`run_time`).

Imports: common, simulator.run_time.
Imported by: backends, eval, mapper, simulator.engine, simulator.network.
"""
