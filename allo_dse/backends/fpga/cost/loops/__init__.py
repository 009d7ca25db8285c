"""Pipelined loops: effects and recurrences, intervals and depths, rounds, and hardware.

Imports: backends.fpga.cost, common, compiler, device, eval.
Imported by: backends.fpga, backends.fpga.cost.
"""
