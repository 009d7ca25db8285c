"""Designs on an NPU: costs of cores, movement of tiles and schedules as a network, and the evaluator that times it.

Imports `mapper`, `simulator` and `device`; nothing of the FPGA evaluators.
"""
