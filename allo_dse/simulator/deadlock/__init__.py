"""Deadlocks of runs and of replays: who waits for whom, and the smallest increase of depths that clears it.

`engine` and `replay` each say what waits after a try.

Imports: common, simulator.network.
Imported by: eval, mapper, simulator, simulator.engine, simulator.replay.
"""
