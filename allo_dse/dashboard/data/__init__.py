"""The dashboard's data as plain arrays: run directories read as they grow, filters, selections, analyses.

Imports: common, device, eval, tune.
Imported by: cli, dashboard, dashboard.app, dashboard.figures.
"""
