"""Pipelined loops: effects and recurrences, intervals and depths, rounds, what they are built of.

Imports: backends.fpga.cost, common, compiler, device, eval.
Imported by: backends.fpga, backends.fpga.cost.
"""
