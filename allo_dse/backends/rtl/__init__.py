"""Circuits without a vendor's tool: CIRCT, a Verilog simulator, Yosys.

Imports: backends.hls, common, ir, program, simulator.
Imported by: eval.
"""
