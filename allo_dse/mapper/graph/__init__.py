"""Graphs of tasks, kernels and ports: schedule trees, names, axes of meshes, streams as arrays.

Imports: common, compiler, mapper, simulator.
Imported by: backends, drawing, eval, mapper.fold, space.
"""
