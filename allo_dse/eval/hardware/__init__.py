"""Designs measured outside this package: folders of files that other tools read, any command, and the NPU itself.

Imports `eval.processes`, `eval.hls` and `eval.verify`.
"""
