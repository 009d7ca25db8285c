"""Folding: from a fold of meshes or nodes to a folded graph (`vmg`), and to the primitives that give it in Allo.

Imports: common, mapper.axes, mapper.graph, mapper.model, program.
Imported by: allo_dse, dnn, drawing, eval, mapper, mapper.limits, mapper.search, mapper.streams, mapper.target, space,
  tune.
"""
