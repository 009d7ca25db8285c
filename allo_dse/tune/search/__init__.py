"""State of a search: objectives, front, promotion to further evaluators, budgets, proposals.

Imports: common, eval, mapper, space, tune.store.
Imported by: cli, dashboard, networks, tune, tune.declare, tune.results, tune.run, tune.show, tune.workers.
"""
