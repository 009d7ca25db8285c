"""Circuits without a vendor's tool: CIRCT, a Verilog simulator, Yosys.

Imports `program`, `simulator.codegen.lowering` and `backends.hls` (folded processes); `eval.rtl` imports it.
"""
