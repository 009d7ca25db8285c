"""Processes and their wiring: task functions, folded programs, tensors' movers, the top function.

Imports: backends.fpga, backends.fpga.hls.cpp, backends.fpga.hls.task, common, compiler, eval.
Imported by: backends.fpga.hls, networks.
"""
