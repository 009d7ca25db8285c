"""Placement and routing: folded nodes on tiles, streams and flows on wires.

`solve` is the entry; it imports `by_models`, which takes a while, where nodes exchange streams or wires are scarce.

Imports: common, device, mapper.graph, mapper.model, mapper.streams.
Imported by: allo_dse, dashboard, drawing, eval, mapper, tune.
"""
