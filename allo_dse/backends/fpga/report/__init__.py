"""Reports of HLS tools as values: `read_hls_report(path)` gives an `HlsReport`.

Imports: common.
Imported by: backends.fpga, backends.fpga.hls, tune.
"""

from allo_dse.common.imports import lazy_exports

__all__, __getattr__ = lazy_exports(__name__, __file__)
