"""Placement and routing: folded nodes on tiles, streams and flows on wires.

Imports what describes a mapping (`streams`, `transport`); `mapping.DeviceMapping` asks it. The solver is `solve`, which
takes a while to import.
"""
