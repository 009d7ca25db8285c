"""Designs on an FPGA: the network of the cost model's intervals and depths, and the evaluator that times it.

Imports: backends, common, device, eval, eval.program, ir, mapper, program, simulator, space.
Imported by: allo_dse, cli, dashboard, dnn, eval, eval.hardware, eval.hls, eval.public, tune.
"""
