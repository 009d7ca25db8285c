"""Launches of networks: their use of a device, and the tensors that operators stream to each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allo_dse.common.records import Frozen, Ints
from allo_dse.device.device import Device
from allo_dse.space.design import Design

if TYPE_CHECKING:
    from allo_dse.mapper.program import Program

UNLIMITED = 1_000_000


class LaunchedDesign(Frozen):
    """A design in a launch.

    Attributes:
        first_column: the first of its columns.
        after: positions of the parts before it whose ends it waits for. wait_us: time from then until it is called.
    """

    design: Design
    first_column: int
    after: Ints
    wait_us: float


class Stream(NamedTuple):
    """A tensor that one operator streams to another.

    Attributes:
        saves: of each limited resource, how much less the two operators take.
        lags: by design of the writer and of the reader, the ticks from the start of one to the start of the other; None
            if the two cannot stream.
    """

    saves: Ints
    lags: tuple[tuple[int | None, ...], ...]


class Launches:
    """Properties of a device that networks depend on; by default, of one that runs operators one by one.

    Attributes:
        columns: neighbouring parts of the device that operators can have for themselves; 0 if it has no such parts.
        limits: of the operators of a launch together: columns, or any number of operators, and then `resources`.
        resources: metrics of designs that launches have a limited amount of.
        most: the largest number of launches of a network; None without a limit.
        call_us: overhead of a call of the device, contained in each design's latency.
        between_us: beginning another launch within a call.
        dram_gb_s: bandwidth of the DRAM.
        ports: to the DRAM that known matrices may have together.
        table_bits: of memory that the bitstream can fill with known operands.
        objectives: of the search for an operator's designs.
        linked: True if the designs of a launch are built together, as one project.
    """

    columns: int = 0
    limits: Ints = (UNLIMITED,)
    resources: tuple[str, ...] = ()
    most: int | None = None
    call_us: float = 0.0
    between_us: float = 0.0
    dram_gb_s: float = float("inf")
    ports: int = 1
    table_bits: int = 0
    objectives: tuple[str, ...] = ("latency_us",)
    linked: bool = False

    def __init__(self, device: Device) -> None:
        self.device = device

    def configuring_us(self, target: str, runtime: str = "calls") -> float:
        """Return the time that a runtime for a target's programs takes before each call of an operator."""
        return 0.0

    def overdue(self, call_us: float) -> str:
        """Return a warning about a call that the device's driver does not let end; empty if it does."""
        return ""

    def parts(self) -> Iterator[tuple[int, Device]]:
        """Yield numbers of columns, each with a device of that size, to search designs for."""
        yield 1, self.device

    def schedules(self, program: Program, tables: Collection[str] = ()) -> Sequence[Any]:
        """Return the schedules that designs of an operator may choose from.

        Args:
            tables: names of the tensors that the bitstream has.
        """
        return ()

    def bandwidth(self, latency_us: float, dram_bytes: int, bound: Mapping[str, float]) -> float:
        """Return the share of the DRAM's bandwidth that a design takes while it runs."""
        return dram_bytes / (latency_us * 1e3 * self.dram_gb_s)

    def ends_us(self, parts: Sequence[LaunchedDesign]) -> list[float] | None:
        """Return the ends of parts of a launch that are simulated together; None if they do not disturb each other."""
        return None

    def passages(self, design: Design, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the passages of the tensors that a design could stream, by name; see `stream`."""
        return {}

    def stream(self, written: Sequence[Any], read: Sequence[Any], tick_us: float) -> Stream | None:
        """Return what streaming a tensor saves and costs; None if no two designs can stream.

        Args:
            written, read: its passage in each design of the writer and of the reader; None where it has none.
        """
        return None

    def moved_bytes(self, design: Design, tensor: str) -> int:
        """Return the bytes of a tensor that a design moves from or to DRAM, and does not if the tensor is a stream."""
        return 0
