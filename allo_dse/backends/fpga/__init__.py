"""The cost model of FPGA designs: what the HLS tool makes of a task body, its cycles and its resources.

Imports: common, device, ir, program.
Imported by: dnn, eval, mapper.
"""
