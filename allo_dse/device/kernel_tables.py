"""Costs of the kernels of an NPU's cores: tables by library and element type, and the choice of one per operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import model_validator

from allo_dse.lang.types import DType

from .model import ElementwiseCost, KernelCost, KernelLibrary, Model, ScalarLoop

_TYPE_PREFIX = {"int": "i", "uint": "u", "float": "f", "bfloat": "bf", "index": "i", "bool": "u"}
_OTHER = "other"
_VECTOR = "vector"


def type_key(dtype: DType) -> str:
    """Return an element type as device files write it: `i16`, `u8`, `bf16`, `f32`; other kinds keep their own name."""
    prefix = _TYPE_PREFIX.get(dtype.kind)
    return f"{prefix}{dtype.bits}" if prefix else dtype.name


class KernelTables(Model):
    """The part of an NPU that says what kernels cost.

    Attributes:
        kernels: cost tables by library and element type; `kernel_library` selects the one that `kernel_cost` uses.
        elementwise: costs of other tile operations by kind, with "other" for kinds that are not listed.
    """

    kernels: Mapping[str, KernelLibrary]
    kernel_library: str
    elementwise: Mapping[str, ElementwiseCost]
    scalar_loop: ScalarLoop

    @model_validator(mode="after")
    def _has_fallbacks(self) -> KernelTables:
        if self.kernel_library not in self.kernels:
            raise ValueError(f"kernel_library {self.kernel_library!r} is not in kernels ({', '.join(self.kernels)})")
        for library, costs in self.kernels.items():
            if _OTHER not in costs:
                raise ValueError(f"kernels.{library}: needs an entry {_OTHER!r} for element types that are not listed")
        if _OTHER not in self.elementwise:
            raise ValueError(f"elementwise: needs an entry {_OTHER!r} for operations that are not listed")
        return self

    def kernel_cost(self, *types: DType | str, library: str | None = None) -> KernelCost:
        """Cost of a matrix multiplication by its element types: operands, then the result.

        The most specific entry of the library wins: "i8->i16" before "i8", "i16xi8->i32" before "i16xi8", which are of
        operands in either order; element types without an entry are scalar code ("other").
        """
        *operands, result = (t if isinstance(t, str) else type_key(t) for t in types)
        distinct = list(dict.fromkeys(operands)) or [result]
        costs = self.kernels[library or self.kernel_library]
        names = list(dict.fromkeys(("x".join(distinct), "x".join(reversed(distinct)))))
        candidates = [*(f"{name}->{result}" for name in names), *names]
        return next((costs[c] for c in candidates if c in costs), costs[_OTHER])

    def has_kernel(self, library: str, types: Sequence[DType | str], shape: Sequence[int]) -> bool:
        """Return whether a library has a kernel for a multiplication of these element types and this shape (m, k,
        n)."""
        cost = self.kernel_cost(*types, library=library)
        return cost is not self.kernels[library][_OTHER] and cost.takes(*shape)

    def matmul_kernel(self, types: Sequence[DType | str], shape: Sequence[int]) -> KernelCost:
        """The kernel that multiplies tiles of a shape (m, k, n).

        A matrix by a vector (n = 1) has one of its own, "vector", in libraries that say so. Else it is the selected
        library's kernel where its contract allows, else that of the first other library that has one, else scalar code.
        """
        selected = self.kernels[self.kernel_library]
        if shape[2] == 1 and _VECTOR in selected:
            return selected[_VECTOR]
        others = (name for name in self.kernels if name != self.kernel_library)
        for library in (self.kernel_library, *others):
            if self.has_kernel(library, types, shape):
                return self.kernel_cost(*types, library=library)
        return selected[_OTHER]

    def elementwise_cost(self, kind: str) -> ElementwiseCost:
        """Cost of a tile operation other than a matrix multiplication ("add", "exp", "fill", ...)."""
        return self.elementwise.get(kind, self.elementwise[_OTHER])
