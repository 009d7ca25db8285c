"""Runs as they are on disk: entries of logs, and logs that grow.

Imports: common, tune.
Imported by: dashboard.data.table.
"""
