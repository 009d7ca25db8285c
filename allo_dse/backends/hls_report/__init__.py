"""Reports of HLS tools as values: `read_hls_report(path)` gives an `HlsReport`.

Imports: common.
Imported by: allo_dse, eval, tune.
"""

from .parts import Cosim, Cycles, HlsFifo, HlsLoop, HlsOperator, HlsReportError, Instance, Module, Resources, Violation
from .report import HlsReport
from .report_files import read_hls_report

__all__ = [
    "Cosim",
    "Cycles",
    "HlsFifo",
    "HlsLoop",
    "HlsOperator",
    "HlsReport",
    "HlsReportError",
    "Instance",
    "Module",
    "Resources",
    "Violation",
    "read_hls_report",
]
