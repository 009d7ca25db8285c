"""Reports of HLS tools as values: `read_hls_report(path)` gives an `HlsReport`.

Imports: common.
Imported by: backends.fpga, backends.fpga.hls, tune.
"""

from .report import (
    Cosim,
    Cycles,
    HlsFifo,
    HlsLoop,
    HlsOperator,
    HlsReport,
    HlsReportError,
    Implementation,
    Instance,
    Module,
    Resources,
    Violation,
)
from .report_files import read_hls_report

__all__ = [
    "Cosim",
    "Cycles",
    "HlsFifo",
    "HlsLoop",
    "HlsOperator",
    "HlsReport",
    "HlsReportError",
    "Implementation",
    "Instance",
    "Module",
    "Resources",
    "Violation",
    "read_hls_report",
]
