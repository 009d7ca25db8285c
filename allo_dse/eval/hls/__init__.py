"""Designs measured by the vendor's HLS tool: projects of designs, the tool, and what its reports change.

Imports `eval.fpga`, `backends.hls` and `backends.hls_report`.
"""
