"""The virtual mapping graph and what is decided on it: folds, limits, data movement, placement.

Everything here is a function of a compiled program (`program`), a device and decisions, and knows no search, no clock
and no file. Of `backends` it asks what FPGA designs cost.

Imports: backends, common, compiler, simulator.
Imported by: allo_dse, backends, drawing, eval, networks, space, tune.
"""
