"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .report import (
    Cosim as Cosim,
    Cycles as Cycles,
    HlsFifo as HlsFifo,
    HlsLoop as HlsLoop,
    HlsOperator as HlsOperator,
    HlsReport as HlsReport,
    HlsReportError as HlsReportError,
    Implementation as Implementation,
    Instance as Instance,
    Module as Module,
    Resources as Resources,
    Violation as Violation,
)
from .report_files import read_hls_report as read_hls_report

__all__: list[str]
