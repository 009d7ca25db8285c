"""Formats and models of external tools: the FPGA cost model, HLS C++, HLS reports and circuits.

Backends take a compiled program (`program`), a device and decisions of a mapping as plain values. None of them runs a
search.

Imports: common, compiler, device, drawing, eval, lang, mapper, simulator, space.
Imported by: allo_dse, cli, networks, tune.
"""
