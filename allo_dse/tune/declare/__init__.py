"""Declaration of a study, with its checks.

Imports: common, compiler, device, eval, lang, mapper, space, tune.search, tune.store.
Imported by: dashboard, tune, tune.results, tune.run, tune.show, tune.workers.
"""
