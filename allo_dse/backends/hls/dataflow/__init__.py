"""Processes and their wiring: task functions, folded programs, tensors' movers, the top function.

Imports: backends.hls.cpp, backends.hls.task, common, ir, program.
Imported by: backends.hls.
"""
