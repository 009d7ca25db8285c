"""What a run shows while it works and when it ends.

Imports: common, tune.declare, tune.results, tune.search, tune.store.
Imported by: cli, dashboard, tune.run.
"""
