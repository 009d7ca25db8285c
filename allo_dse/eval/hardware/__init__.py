"""Designs measured outside this package: folders of files that other tools read, any command, and the NPU itself.

Imports: common, eval, eval.equivalence, eval.fpga, eval.hls, eval.processes, frontend, lang, mapper, space.
Imported by: allo_dse, cli, dashboard, dnn, tune.
"""
