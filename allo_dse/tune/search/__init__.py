"""State of a search: objectives, front, ladder of evaluators, budgets, proposals.

Imports: common, eval, space, tune.store.
Imported by: allo_dse, cli, dashboard, networks, tune, tune.declare, tune.results, tune.run, tune.show, tune.workers.
"""
