"""The web app and the report on runs: the front, the progress of a run, single designs, and what tells two apart.

Imports: allo_dse, backends, common, device, drawing, eval, simulator, space, tune.
Imported by: cli.
"""
