"""Progress and final summary of a run.

Imports: common, tune.declare, tune.results, tune.search, tune.store.
Imported by: cli, dashboard, tune.run.
"""
