"""Which tiles move over which channels: the transport plan of a folded graph, and limits of the tiles that carry it.

Imports: common, device, mapper.graph, mapper.layouts, mapper.model, mapper.streams, program, simulator.
Imported by: eval, mapper, mapper.limits, mapper.search.
"""
