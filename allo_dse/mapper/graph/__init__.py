"""Graphs of tasks, kernels and ports: schedule trees, names, axes of meshes, streams as arrays.

Imports: common, mapper.axes, mapper.model, program, simulator.
Imported by: drawing, eval, mapper.fold, mapper.layouts, mapper.limits, mapper.model, mapper.place, mapper.search,
  mapper.streams, mapper.target, mapper.transport, space.
"""
