"""Deadlocks of runs and of replays: who waits for whom, and the smallest increase of depths that clears it.

`engine` and `replay` each say what waits after a try.

Imports: common, simulator.network.
Imported by: allo_dse, backends, eval, simulator, simulator.engine, simulator.replay.
"""
