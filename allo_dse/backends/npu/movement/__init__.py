"""Which tiles move over which channels: the transport plan of a folded graph, and limits of the tiles that carry it.

Imports: common, compiler, device, mapper, simulator.
Imported by: backends.npu, backends.npu.allo, backends.npu.place, networks, tune.
"""
