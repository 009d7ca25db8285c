"""What a study declares, checked.

Imports: common, device, eval, frontend, lang, mapper, space, tune.search, tune.store.
Imported by: dashboard, tune, tune.results, tune.run, tune.show, tune.workers.
"""
