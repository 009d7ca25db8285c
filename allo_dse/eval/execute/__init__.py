"""Running programs: the network of a program or of any fold of it, its state, vendor kernels and recorded traces.

Imports: common, compiler, eval, lang, mapper, simulator, space.
Imported by: allo_dse, backends, eval, eval.equivalence, networks, tune.
"""
