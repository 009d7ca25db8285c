"""Reports of HLS tools as values: `read_hls_report(path)` gives an `HlsReport`."""

from .parts import Cosim, Cycles, HlsFifo, HlsLoop, HlsReportError, Instance, Module, Resources, Violation
from .project import read_hls_report
from .report import HlsReport

__all__ = [
    "Cosim",
    "Cycles",
    "HlsFifo",
    "HlsLoop",
    "HlsReport",
    "HlsReportError",
    "Instance",
    "Module",
    "Resources",
    "Violation",
    "read_hls_report",
]
