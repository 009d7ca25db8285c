"""One run from start to finish: the driver's loop, resuming, sharing with other drivers, caches.

Imports: common, eval, space, tune.declare, tune.results, tune.search, tune.show, tune.store, tune.workers.
Imported by: cli, dashboard, tune.
"""
