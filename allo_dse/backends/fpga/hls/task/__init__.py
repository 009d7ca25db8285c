"""The C++ function of a task: its body, arrays, statements, tokens, pragmas.

Imports: backends.fpga, backends.fpga.cost, backends.fpga.hls.cpp, common, compiler.
Imported by: backends.fpga.hls, backends.fpga.hls.dataflow.
"""
