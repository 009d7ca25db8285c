"""The cost model of FPGA designs: hardware that the HLS tool makes of a task body, its cycles and its resources.

Imports: backends.fpga, common, compiler, device, eval.
Imported by: backends.fpga, backends.fpga.choices, backends.fpga.depths, backends.fpga.hls.
"""
