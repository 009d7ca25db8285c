"""Results of a run: data frames, designs in words, files to build from.

Imports: common, drawing, eval, mapper, space, tune.declare, tune.search, tune.store.
Imported by: cli, dashboard, networks, tune, tune.run, tune.show.
"""
