"""The report: one HTML file with the same pictures, for people without the run, the program or a network.

Imports: allo_dse, common, dashboard, dashboard.data, dashboard.figures, eval.
Imported by: dashboard.
"""

from allo_dse.common.quoting import script_json

from .report import render, write_report

__all__ = ["render", "script_json", "write_report"]
