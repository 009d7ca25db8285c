"""Designs on an NPU: costs of cores, movement of tiles and schedules as a network, and the evaluator that times it.

Imports: common, device, eval, lang, mapper, program, simulator, space.
Imported by: allo_dse, dashboard, dnn, eval.calibrate, tune.
"""
