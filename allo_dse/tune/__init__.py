"""Studies and runs: what users declare, and everything from there to a front on disk.

`declare` what a study is, `search` what is proposed next and what is known, `workers` where designs are evaluated,
`store` the log and the run directory, `run` one run from start to finish, `results` and `show` what is told of it.

Imports: backends, common, compiler, device, drawing, eval, lang, mapper, space.
Imported by: allo_dse, cli, dashboard, networks.
"""
