"""Folding: from a fold of meshes or nodes to a folded graph (`vmg`), and to the primitives that give it in Allo.

Imports `graph` and `model`; `search`, `streams` and `limits` import it.
"""
