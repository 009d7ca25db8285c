"""The web app and the report on runs: the front, the progress of a run, single designs, and what tells two apart.

Imports: allo_dse, common, device, drawing, eval, mapper, simulator, space, tune.
Imported by: cli.
"""
