"""Designs on an FPGA: the network of the cost model's intervals and depths, and the evaluator that times it.

Imports `backends.fpga`, `mapper` and `simulator`; `eval.hls` imports this package.
"""
