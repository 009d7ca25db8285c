"""The web app and the report on runs: the front, progress, single designs, and differences between two.

Imports: allo_dse, common, device, drawing, eval, simulator, space, tune.
Imported by: cli.
"""
