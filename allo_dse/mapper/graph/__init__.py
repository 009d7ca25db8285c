"""Graphs of tasks, kernels and ports: schedule trees, names, axes of meshes, streams as arrays.

Imports: backends, common, device, mapper.axes, mapper.layouts, mapper.model, program, simulator.
Imported by: drawing, eval, mapper.fold, mapper.limits, mapper.place, mapper.search, mapper.streams, mapper.target,
  mapper.transport, space.
"""
