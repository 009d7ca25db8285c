"""Designs on an FPGA: the network of the cost model's intervals and depths, and the evaluator that times it.

Imports: allo_dse, common, compiler, device, eval, lang, mapper, simulator, space.
Imported by: cli, networks, tune.
"""
