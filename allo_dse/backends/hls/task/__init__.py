"""The C++ function of a task: its body, arrays, statements, tokens, pragmas.

Imports: backends.hls.cpp, common, ir, program.
Imported by: backends.hls, backends.hls.dataflow.
"""
