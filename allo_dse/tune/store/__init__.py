"""The log of a run, its records, and the run directory.

Imports: common, mapper, space.
Imported by: cli, dashboard, dnn, tune, tune.declare, tune.results, tune.run, tune.search, tune.show, tune.workers.
"""
