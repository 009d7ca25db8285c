"""Fits the numbers of an NPU's device file to measured times, with the simulator as the model.

Imports: common, compiler, device, eval, space.
Imported by: backends, cli, dashboard, tune.
"""
