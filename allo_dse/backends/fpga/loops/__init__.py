"""Pipelined loops: effects and recurrences, intervals and depths, rounds, what they are built of.

Imports: backends.fpga, common, device, ir, program.
Imported by: backends.fpga, eval.
"""
