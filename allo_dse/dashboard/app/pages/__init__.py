"""The pages and their callbacks.

Imports: common, dashboard, dashboard.app, dashboard.data, dashboard.figures, drawing, eval, tune.
Imported by: dashboard.app.
"""
