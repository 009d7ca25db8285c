"""Deadlocks of runs and of replays: the tasks that wait for each other, and the smallest increase of depths that helps.

`engine` and `replay` each report the waiting tasks of a try.

Imports: common, simulator.network.
Imported by: allo_dse, eval, simulator, simulator.engine, simulator.replay.
"""
