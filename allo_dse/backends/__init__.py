"""What other tools read and write: the FPGA cost model, HLS C++, HLS reports and circuits.

Backends take a compiled program (`program`), a device and decisions of a mapping as plain values, and import
`frontend`, `program`, `simulator.codegen`, `device`, `ir` and `lang`. `mapper` and what is above it use them. None of
them runs a search.
"""
