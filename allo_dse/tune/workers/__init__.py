"""Where designs are evaluated: this process, child processes, workers on this machine or a cluster.

Imports: common, eval, space, tune.declare, tune.search, tune.store.
Imported by: tune, tune.run.
"""
