"""Fits the numbers of an NPU's device file to measured times; the simulator is what predicts.

Imports: backends, common, device, eval.npu, program, space.
Imported by: cli, dashboard, eval.hls, tune.
"""
