"""Callbacks that pages share: gestures, plots, tables, the frame around the pages.

Imports: common, dashboard, dashboard.app, dashboard.data, dashboard.figures, tune.
Imported by: dashboard.app, dashboard.app.pages.
"""
