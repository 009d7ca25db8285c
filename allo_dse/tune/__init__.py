"""Studies and runs: what users declare, and everything from there to a front on disk.

`declare` has the declaration of a study, `search` proposals and the state of a search, `workers` the evaluation of
designs. `store` has the log and the run directory, `run` one run from start to finish, `results` and `show` its report.

Imports: backends, common, compiler, device, drawing, eval, lang, mapper, space.
Imported by: cli, dashboard, networks.
"""
