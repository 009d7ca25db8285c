"""Circuits without a vendor's tool: CIRCT, a Verilog simulator, Yosys.

Imports: common, compiler, device, eval, mapper, simulator, space.
Imported by: nothing of allo_dse.
"""
