"""Transport plan of a folded graph, which assigns tiles to channels, and limits of the tiles that carry it.

Imports: common, compiler, device, eval, mapper, simulator.
Imported by: backends.npu, backends.npu.allo, backends.npu.board, backends.npu.place.
"""
