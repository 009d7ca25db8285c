"""The dashboard's data as plain arrays: run directories read as they grow, filters, selections, analyses.

Imports: common, device, eval, space, tune.
Imported by: cli, dashboard, dashboard.app, dashboard.figures.
"""
