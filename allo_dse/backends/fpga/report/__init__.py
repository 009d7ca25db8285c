"""Reports of HLS tools as values: `read_hls_report(path)` gives an `HlsReport`.

Imports: common.
Imported by: backends.fpga, backends.fpga.hls, tune.
"""
