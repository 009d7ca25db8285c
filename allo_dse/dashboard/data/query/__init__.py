"""Filters, selections and analyses of a run's table."""
