"""What moves between and inside nodes: tiles, flows that several nodes share, rounds, memory of a core.

Imports: common, device, mapper.fold, mapper.graph, mapper.model, program, simulator.
Imported by: eval, mapper, mapper.limits, mapper.place, mapper.target, mapper.transport.
"""
