"""Fits the numbers of an NPU's device file to measured times; the simulator is what predicts."""
