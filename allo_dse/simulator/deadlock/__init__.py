"""Deadlocks of runs and of replays: who waits for whom, and the smallest increase of depths that clears it.

Imports `network` (labels) only; `engine` and `replay` import it, each saying what waits after a try.
"""
