"""Circuits without a vendor's tool: CIRCT, a Verilog simulator, Yosys.

Imports: backends.hls, common, device, ir, program, simulator.
Imported by: eval.
"""
