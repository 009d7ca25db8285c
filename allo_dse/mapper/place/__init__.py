"""Placement and routing: folded nodes on tiles, streams and flows on wires.

The solver is `solve`, which
takes a while to import.

Imports: common, device, mapper.graph, mapper.layouts, mapper.model, mapper.streams, mapper.transport.
Imported by: allo_dse, dashboard, drawing, eval, mapper, tune.
"""
