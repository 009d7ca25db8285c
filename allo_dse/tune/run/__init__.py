"""One run from start to finish: the driver's loop, resuming, caches, and a copy in an Optuna storage.

Imports: common, eval, space, tune.declare, tune.results, tune.search, tune.show, tune.store, tune.workers.
Imported by: cli, tune.
"""
