"""Filters, selections and analyses of a run's table.

Imports: common, dashboard.data, dashboard.data.table, eval, tune.
Imported by: cli, dashboard, dashboard.app, dashboard.data, dashboard.figures, dashboard.report.
"""
