"""Choices of FPGA designs: schedules, memory, stream depths, clocks.

Imports: backends.fpga, backends.fpga.cost, common, compiler, device, mapper, simulator, space.
Imported by: backends.fpga.
"""
