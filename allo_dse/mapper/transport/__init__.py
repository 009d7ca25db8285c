"""Which tiles move over which channels: the transport plan of a folded graph, and limits of the tiles that carry it.

Imports `streams` and `layouts`; `limits`, `place` and `eval.npu` import it.
"""
