"""How deep the buffers are that tiles pass through."""

from __future__ import annotations

from dataclasses import dataclass

from allo_dse.common.aliases import JsonObject
from allo_dse.common.errors import AlloDseError


@dataclass(frozen=True)
class Buffering:
    """Depths of the object FIFOs between DRAM and the cores; 2 is double buffering.

    Attributes:
        input_depth, output_depth: tiles that each tensor port of a core holds.
        memory_tile_depth: tiles that a memory tile holds of each flow that is staged there.
    """

    input_depth: int = 2
    output_depth: int = 2
    memory_tile_depth: int = 2

    def __post_init__(self) -> None:
        for name, depth in self.to_dict().items():
            if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
                raise AlloDseError(
                    f"Buffering.{name} is {depth!r}", hint="a depth is a whole number of tiles, at least 1"
                )

    def to_dict(self) -> JsonObject:
        """Plain data, JSON-serialisable; `Buffering(**data)` is the inverse."""
        return dict(vars(self))
