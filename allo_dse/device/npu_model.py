"""Content of a device file as immutable models that reject unknown keys, wrong types and impossible numbers.

Units are part of the names. Where a number comes from is written beside it in the device file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from .model import Bits, Count, Model, NotNegative, Positive, Share, Size

if TYPE_CHECKING:
    from allo_dse.lang.types import DType


class Descriptor(Model):
    """Capabilities of one DMA buffer descriptor: a nest of loops over 32-bit words.

    Attributes:
        dims: nested dimensions; the outermost has no wrap register, its extent follows from the length.
        length_bits: bits of the length register, in 32-bit words.
        wrap_bits, step_bits: bits of a dimension's extent and of its stride, in 32-bit words.
        iteration_bits: bits of the repeat count, which acts as one more (outermost) dimension; 0 when there is none.
    """

    dims: Count
    length_bits: Bits
    wrap_bits: Bits
    step_bits: Bits
    iteration_bits: Annotated[int, Field(ge=0, le=32)]

    @property
    def max_words(self) -> int:
        return (1 << self.length_bits) - 1

    @property
    def max_wrap(self) -> int:
        return (1 << self.wrap_bits) - 1

    @property
    def max_step_words(self) -> int:
        return 1 << self.step_bits

    @property
    def max_iterations(self) -> int:
        """The largest repeat count; 1 when the descriptor has no iteration register."""
        return 1 << self.iteration_bits


class Tile(Model):
    """Common part of all kinds of tiles.

    Attributes:
        dma_in, dma_out: DMA channels that write into the tile's memory (S2MM) and that read from it (MM2S). For a shim
            tile the memory is DRAM: `dma_out` channels feed the array, `dma_in` channels drain it.
        descriptor_banks: descriptors are divided evenly among banks; channel c can use bank c modulo this number only.
    """

    dma_in: Count
    dma_out: Count
    buffer_descriptors: Count
    descriptor_banks: Count
    locks: Count
    descriptor: Descriptor

    @model_validator(mode="after")
    def _banks_divide(self) -> Tile:
        if self.buffer_descriptors % self.descriptor_banks:
            raise ValueError(
                f"{self.buffer_descriptors} buffer_descriptors do not divide into {self.descriptor_banks} banks"
            )
        return self


class Core(Tile):
    """A compute tile.

    Attributes:
        memory_bytes: data memory.
        program_bytes: program memory.
        stack_bytes: default stack.
        neighbours: sides whose core's data memory this core can address.
    """

    memory_bytes: Count
    program_bytes: Count = 16384
    stack_bytes: Size
    neighbours: tuple[Annotated[str, Field(pattern="^(north|south|east|west)$")], ...]

    @property
    def max_neighbours(self) -> int:
        """Cores it can share memory with: a side is usable if either of the two cores addresses the other's memory."""
        opposite = {"north": "south", "south": "north", "east": "west", "west": "east"}
        return len({*self.neighbours, *(opposite[side] for side in self.neighbours)})


class MemoryTile(Tile):
    """A memory tile: staging between DRAM and the cores of a column."""

    memory_bytes: Count


class Array(Model):
    """The grid of tiles: per column one shim tile, one memory tile and `core_rows` compute tiles.

    Attributes:
        columns: columns that this device uses, of the `usable_columns` that the chip offers.
    """

    columns: Count
    usable_columns: Count
    core_rows: Count

    @model_validator(mode="after")
    def _columns_exist(self) -> Array:
        if self.columns > self.usable_columns:
            raise ValueError(f"columns {self.columns} exceeds usable_columns {self.usable_columns}")
        return self


class SwitchPorts(Model):
    """Ports of a stream switch, (out, in) per side; (0, 0) where there is no connection."""

    north: tuple[Size, Size]
    south: tuple[Size, Size]
    east: tuple[Size, Size]
    west: tuple[Size, Size]


class Interconnect(Model):
    """Streams between tiles.

    Attributes:
        stream_bytes_per_cycle: of every switch connection and DMA channel.
    """

    stream_bytes_per_cycle: Positive
    core: SwitchPorts
    memory_tile: SwitchPorts
    shim: SwitchPorts


class Host(Model):
    """Host side of a call: the number of tensors that it can pass.

    Attributes:
        call_timeout_s: time after which the driver, with its default settings, aborts a call.
    """

    buffers: Count
    reserved_buffers: Size
    call_timeout_s: Positive = 1e9

    @model_validator(mode="after")
    def _some_are_usable(self) -> Host:
        if self.reserved_buffers >= self.buffers:
            raise ValueError(f"reserved_buffers {self.reserved_buffers} leaves none of {self.buffers} buffers")
        return self

    @property
    def usable_buffers(self) -> int:
        return self.buffers - self.reserved_buffers


class Board(Model):
    """Parameters that differ between boards with the same device, and with their power mode.

    Attributes:
        dram_gb_s: bandwidth that all shim channels of one direction share, in 1e9 bytes per second: reading does not
            hold up writing.
        dram_burst_half_bytes: contiguous run length L0 at which DRAM reaches half its bandwidth: its efficiency is
            L / (L + L0).
        page_bytes: rows of this length are slow to walk down: every one of them starts a page like the one before.
        page_slowdown: how many times as long a tile takes then.
        page_reach_bytes: size of the largest tensor that is not slowed down.
        launch_us: overhead of one call, host to host, without its columns.
        launch_column_us: what each column of the device adds to that.
        relaunch_us: beginning another program on all cores within a call.
        reconfigure_us: loading another array configuration: another xclbin.
        control_packets_us: writing another configuration of the array by control packets.
        host_sync_gb_s: rate at which the host makes its buffers visible to the device and back, in 1e9 bytes per
            second.
        host_rewrite_us: the host writing one more shim descriptor, for which it waits until nothing is in flight; 0
            where it writes them ahead, so that nothing waits.
    """

    clock_ghz: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]
    dram_gb_s: Positive
    dram_burst_half_bytes: NotNegative
    page_bytes: Count
    page_slowdown: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    page_reach_bytes: Size
    launch_us: NotNegative
    launch_column_us: NotNegative = 0.0
    relaunch_us: NotNegative
    reconfigure_us: NotNegative
    control_packets_us: NotNegative = 123.0
    host_sync_gb_s: Positive
    host_rewrite_us: NotNegative

    def dram_us(self, tile_bytes: int, run_bytes: int, paged: bool) -> float:
        """Time that one tile holds up the other transfers of its direction; `paged`: its rows are whole pages."""
        bytes_of_long_runs = tile_bytes * (run_bytes + self.dram_burst_half_bytes) / run_bytes
        return bytes_of_long_runs / (self.dram_gb_s * 1e3) * (self.page_slowdown if paged else 1.0)

    def host_us(self, columns: int, tensor_bytes: int, rewrites: int) -> float:
        """The host's part of a call: launch, making its buffers visible and back, rewriting descriptors.

        Args:
            columns: of the device.
            tensor_bytes: of all tensors.
            rewrites: how many descriptors the host writes while the array runs.
        """
        launch_us = self.launch_us + self.launch_column_us * columns
        return launch_us + tensor_bytes / (self.host_sync_gb_s * 1e3) + self.host_rewrite_us * rewrites


HOST_NUMBERS = ("launch_us", "launch_column_us", "host_sync_gb_s", "host_rewrite_us")
"""Of a board, what says how long and whether the array waits for the host, but not how long it works in between."""


class KernelCost(Model):
    """Cycles of a matrix multiplication of one tile: m*k*n / (peak * efficiency) + a*m*n + call.

    A task pays two more: what exchanging its tiles costs beside the calls, and what giving away a result costs.

    Attributes:
        peak_mac_per_cycle: multiply-accumulates per cycle of one core.
        efficiency: share of the peak that the inner loop reaches.
        accumulate_cycles_per_element: a, the cost of loading and storing one accumulator per call of the kernel.
        call_cycles: fixed cost per call (prologue, epilogue).
        task_cycles: fixed cost of a task that calls the kernel once or more often (locks, descriptors).
        result_cycles: fixed cost of a task that gives away a result, where the tools empty the array between results.
        drain_cycles_per_byte: what a core waits for its result to leave, beyond its own channel, where the tools let
            all cores of a column finish before the next results are begun.
        column_major: for kernels that take operands stored by columns, factors of the time of the multiply-accumulates
            where A is, and where B is. Without it, the operand is turned before.
        operand_channels: DMA channels that share the transfer of an operand.
        multiple_of: the contract of a vendor's kernel: m, k and n are multiples of these. Any tile without it.
    """

    peak_mac_per_cycle: Positive
    efficiency: Share
    accumulate_cycles_per_element: NotNegative
    call_cycles: NotNegative
    task_cycles: NotNegative = 0.0
    result_cycles: NotNegative = 0.0
    drain_cycles_per_byte: NotNegative = 0.0
    column_major: tuple[Positive, Positive] | None = None
    operand_channels: Count = 1
    multiple_of: tuple[Count, Count, Count] | None = None

    def takes(self, m: int, k: int, n: int) -> bool:
        """Return whether the kernel can multiply tiles of this shape."""
        return self.multiple_of is None or not any(
            size % step for size, step in zip((m, k, n), self.multiple_of, strict=True)
        )

    def cycles(self, m: int, k: int, n: int, slower: float = 1.0) -> float:
        """Core cycles for C[m, n] += A[m, k] @ B[k, n], with multiply-accumulates that take `slower` times as long."""
        return (
            m * k * n * slower / (self.peak_mac_per_cycle * self.efficiency)
            + self.accumulate_cycles_per_element * m * n
            + self.call_cycles
        )


class ElementwiseCost(Model):
    """Cycles of an operation on whole tiles: bytes of the result / bytes_per_cycle + call."""

    bytes_per_cycle: Positive
    call_cycles: NotNegative

    def cycles(self, result_bytes: int) -> float:
        return result_bytes / self.bytes_per_cycle + self.call_cycles


class ScalarLoop(Model):
    """Scalar code: cycles of one iteration of an innermost source loop, and of a task that has such loops (locks)."""

    cycles_per_iteration: Positive
    task_cycles: NotNegative


class Accuracy(Model):
    """Errors of predicted latencies, compared with measurements.

    Attributes:
        board, kernels: the board and the kernel library of the measured designs; any library where `kernels` is empty.
        operations: what the measured programs compute ("matmul", "exp", ...), in order of names.
        element: the type of the first tensor's elements ("i8").
        least_us: the shortest predicted latency that it holds for; of several entries the one that begins last counts.
        percent: nine of ten were no further off when they had no part in the fit.
        measurements: how many there were.
    """

    board: str
    kernels: str = ""
    operations: tuple[str, ...]
    element: str
    least_us: NotNegative = 0.0
    percent: Positive
    measurements: Count


KernelLibrary = Mapping[str, KernelCost]


# Costs of the kernels of an NPU's cores: tables by library and element type, and the choice of one per operation.


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
        elementwise: costs of other tile operations by kind, with "other" for kinds that are not listed; "iron.gelu" for
            a library that has its own.
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
        own = self.elementwise.get(f"{self.kernel_library}.{kind}")
        return own or self.elementwise.get(kind, self.elementwise[_OTHER])
