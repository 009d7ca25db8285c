"""A limit of the device that a mapping exceeds. A value, not an exception: searches count them, users read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import JsonObject

# All constraints: the counted quantity and its unit. docs/devices.md explains each.
CONSTRAINTS: Mapping[str, tuple[str, str]] = {
    "compute_tiles": ("compute tiles", ""),
    "host_buffers": ("host buffers", ""),
    "shared_arrays": ("arrays that tasks on several tiles share", ""),
    "core_dma_in": ("DMA in-channels", ""),
    "core_dma_out": ("DMA out-channels", ""),
    "core_memory": ("data memory", "bytes"),
    "core_descriptors": ("buffer descriptors", ""),
    "core_locks": ("locks", ""),
    "stream_deadlock": ("nodes that wait for each other, whatever the depths of streams", ""),
    "tile_deadlock": ("nodes that wait for tiles that others have no room for", ""),
    "memory_tile_dma_in": ("DMA in-channels", ""),
    "memory_tile_dma_out": ("DMA out-channels", ""),
    "memory_tile_memory": ("memory", "bytes"),
    "memory_tile_descriptors": ("buffer descriptors", ""),
    "memory_tile_locks": ("locks", ""),
    "shim_dma_in": ("DMA channels to DRAM", ""),
    "shim_dma_out": ("DMA channels from DRAM", ""),
    "shim_descriptors": ("buffer descriptors", ""),
    "column_assignment": ("columns", ""),
    "descriptor_length": ("words in one descriptor", ""),
    "descriptor_stride": ("words from row to row of a tile", ""),
    "switch_ports": ("stream-switch ports", ""),
    "word_alignment": ("bytes beyond whole words", ""),
    "lut": ("LUTs", ""),
    "ff": ("flip-flops", ""),
    "dsp": ("DSPs", ""),
    "bram18": ("block RAMs (18 Kb)", ""),
    "uram": ("UltraRAMs", ""),
    "axi_interfaces": ("AXI interfaces", ""),
    "partition_factor": ("banks", ""),
    "partition_conflict": ("partitions of one memory", ""),
    "bank_ports": ("tasks at one memory on the chip", ""),
    "ping_pong": ("nodes between which a buffer has two banks", ""),
    "static_control": ("control that depends on data", ""),
}

# Further constraints of a target (`backends.npu.allo`); docs/allo_target.md explains each.
TARGET_CONSTRAINTS: Mapping[str, tuple[str, str]] = {
    "allo_source": ("what Allo does not compile", ""),
    "allo_unused_tensor": ("unused arguments", ""),
    "allo_kernel_shapes": ("shapes of one kernel of Allo", ""),
    "allo_tasks": ("tasks that Allo folds", ""),
    "allo_rounds": ("time that Allo takes to compare nodes", "s"),
    "allo_tensor_rank": ("dimensions that Allo moves", ""),
    "allo_core_ports": ("tensors that Allo gives a core", ""),
    "allo_transfers": ("transfers that Allo makes", ""),
    "allo_rolled_streams": ("streams in loops of chained tasks", ""),
    "allo_chained_loops": ("tokens between loops of chained tasks", ""),
    "allo_placement": ("cores that Allo finds", ""),
    "allo_stream_layout": ("streams that change their layout", ""),
    "allo_token_order": ("tokens out of order", ""),
    "allo_requests": ("requests that Allo queues", ""),
    "program_memory": ("program memory", "bytes"),
}

# Constraints that count nothing: they refuse, with the reason in `detail`.
REFUSALS = frozenset(
    {
        "stream_deadlock",
        "partition_conflict",
        "allo_source",
        "allo_unused_tensor",
        "allo_transfers",
        "allo_rolled_streams",
        "allo_chained_loops",
        "allo_placement",
        "allo_stream_layout",
        "allo_token_order",
    }
)

_KNOWN = {**CONSTRAINTS, **TARGET_CONSTRAINTS}


@dataclass(frozen=True)
class Violation:
    """One exceeded limit.

    Attributes:
        constraint: machine name, one of `CONSTRAINTS` or `TARGET_CONSTRAINTS`, or of a backend outside the package.
        where: the tile, node or tensor it concerns.
        needed, limit: in `unit`.
        detail: what makes up the need.

    >>> str(Violation("core_dma_in", "core a_0", 3, 2, "A, B, pipe"))
    'DMA in-channels on core a_0: needs 3, has 2 (A, B, pipe)'
    """

    constraint: str
    where: str
    needed: int
    limit: int
    detail: str = ""

    @property
    def title(self) -> str:
        """The quantity that is limited, in words."""
        return _KNOWN.get(self.constraint, (self.constraint.replace("_", " "), ""))[0]

    @property
    def unit(self) -> str:
        """Unit of `needed` and `limit`; empty for things that are counted."""
        return _KNOWN.get(self.constraint, ("", ""))[1]

    def __str__(self) -> str:
        if self.constraint == "static_control":  # counts nothing
            return f"{self.title}: {self.detail}"
        if self.constraint in REFUSALS:
            return f"{self.where}: {self.detail}"
        unit = f" {self.unit}" if self.unit else ""
        reason = f" ({self.detail})" if self.detail else ""
        return f"{self.title} on {self.where}: needs {self.needed:,}{unit}, has {self.limit:,}{unit}{reason}"


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
