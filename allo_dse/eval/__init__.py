"""Evaluation of designs: evaluators, runs on numbers, verification and calibration.

`evaluator` is the protocol of evaluators. `execute` runs programs and folded programs on numbers. `verify` checks
designs against a reference, `equivalence` for all inputs, and `calibrate` fits devices to measurements.

Imports: common, compiler, device, lang, mapper, simulator, space.
Imported by: allo_dse, backends, cli, dashboard, networks, tune.
"""
