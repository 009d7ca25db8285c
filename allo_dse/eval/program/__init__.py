"""Running programs: the network of a program or of any fold of it, its state, vendor kernels and recorded traces.

Imports: backends, common, frontend, ir, lang, mapper, program, simulator, space.
Imported by: dnn, eval, eval.equivalence, eval.fpga, eval.hls, eval.public, tune.
"""
