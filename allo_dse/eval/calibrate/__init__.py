"""Fits the numbers of an NPU's device file to measured times; the simulator is what predicts.

Imports: backends, common, device, space.
Imported by: backends, cli, dashboard, tune.
"""
