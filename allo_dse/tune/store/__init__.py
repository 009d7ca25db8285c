"""The log of a run, its records, and the run directory.

Imports: common, space.
Imported by: cli, dashboard, networks, tune, tune.declare, tune.results, tune.run, tune.search, tune.show, tune.workers.
"""
