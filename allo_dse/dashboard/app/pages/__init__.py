"""The pages and their callbacks.

Imports: common, dashboard, dashboard.app, dashboard.app.wiring, dashboard.data, dashboard.figures, drawing, eval,
  mapper, tune.
Imported by: dashboard.app.
"""
