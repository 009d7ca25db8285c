"""The report: one HTML file with the same pictures, for people without the run, the program or a network.

Imports: allo_dse, common, dashboard, dashboard.data, dashboard.figures.
Imported by: dashboard.
"""

from .page import render, script_json, write_report

__all__ = ["render", "script_json", "write_report"]
