"""Folding: from a fold of meshes or nodes to a folded graph (`vmg`), and to the primitives that give it in Allo.

Imports: common, compiler, mapper, mapper.graph.
Imported by: allo_dse, backends, drawing, eval, mapper, networks, space, tune.
"""
