"""Designs on an NPU: costs of cores, movement of tiles and schedules as a network, and the evaluator that times it.

Imports: common, compiler, device, drawing, eval, lang, mapper, simulator, space.
Imported by: networks.
"""
