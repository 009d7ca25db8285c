"""Virtual mapping graphs: folds, layouts and limits.

Everything here is a function of a compiled program (`program`), a device and decisions, and knows no search, no
clock and no file.

Imports: common, compiler, simulator.
Imported by: allo_dse, backends, drawing, eval, networks, space, tune.
"""
