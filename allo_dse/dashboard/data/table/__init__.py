"""A run as columns that grow with its log.

Imports: common, dashboard.data.log, tune.
Imported by: cli, dashboard.app, dashboard.data, dashboard.data.query, dashboard.figures, dashboard.report.
"""
