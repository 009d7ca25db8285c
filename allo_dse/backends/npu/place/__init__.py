"""Placement and routing: folded nodes on tiles, streams and flows on wires.

`solve` is the entry; it imports `by_models`, which takes a while, where nodes exchange streams or wires are scarce.

Imports: backends.npu.movement, common, compiler, device, mapper.
Imported by: backends.npu.
"""
