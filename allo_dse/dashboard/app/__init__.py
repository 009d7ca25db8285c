"""The web app: layout, callbacks, and the server that runs it.

Imports: common, dashboard, dashboard.data, dashboard.figures, drawing, eval, tune.
Imported by: cli.
"""
