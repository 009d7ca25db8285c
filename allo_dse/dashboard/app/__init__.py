"""The web app: layout, callbacks, and the server that runs it.

Imports: backends, common, dashboard, dashboard.data, dashboard.figures, drawing, eval, tune.
Imported by: dashboard.
"""
