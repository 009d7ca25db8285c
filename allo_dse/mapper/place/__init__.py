"""Placement and routing: folded nodes on tiles, streams and flows on wires.

The solver is `solve`, which
takes a while to import.

Imports: common, device, mapper.graph, mapper.model, mapper.streams.
Imported by: allo_dse, dashboard, drawing, eval, mapper, tune.
"""
