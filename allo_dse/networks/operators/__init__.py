"""The operators of networks as dataflow programs: one file per kind, each with its program, what may vary in it, and
what it computes in NumPy.

`work` is what a kind hands over, and `execute` runs it on numbers. A program's tensors are those of the operator, in
another shape at most.

Imports: common, compiler, eval, lang, mapper, space.
Imported by: networks, networks.export, networks.onnx.
"""

from allo_dse.lang import install

install()  # programs import `allo`: its stand-in if Allo is not installed

from .elementwise import binary_work, rms_norm_work, rope_work, unary_work
from .execute import Work, element_type
from .products import gemm_work, gemv_work
from .sequences import attention_work, heads_of, pair_matrix, query_matrix

__all__ = [
    "Work",
    "attention_work",
    "binary_work",
    "element_type",
    "gemm_work",
    "gemv_work",
    "heads_of",
    "pair_matrix",
    "query_matrix",
    "rms_norm_work",
    "rope_work",
    "unary_work",
]
