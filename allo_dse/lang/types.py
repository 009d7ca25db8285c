"""Element types of tensors and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "uint", "float", "bfloat", "fixed", "ufixed", "index", "bool"]


@dataclass(frozen=True)
class DType:
    """An element type: its name as programs write it, its kind and its width in bits."""

    name: str
    kind: Kind
    bits: int
    fraction_bits: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return -(-self.bits // 8)

    def __repr__(self) -> str:
        return self.name
