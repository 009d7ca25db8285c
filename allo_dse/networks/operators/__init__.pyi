"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .attention import (
    attention_work as attention_work,
    heads_of as heads_of,
    pair_matrix as pair_matrix,
    query_matrix as query_matrix,
)
from .elementwise import (
    binary_work as binary_work,
    rms_norm_work as rms_norm_work,
    rope_work as rope_work,
    unary_work as unary_work,
)
from .execute import Work as Work, element_type as element_type
from .products import gemm_work as gemm_work, gemv_work as gemv_work

__all__: list[str]
