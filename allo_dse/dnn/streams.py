"""Which operators of a network may stream to each other on an FPGA, when that lets them start, and what it saves.

What streams comes in the order in which it is written. The kernel that reads it receives it into a memory of its own,
and hands tiles out of that in the order in which its tasks need them, as often as they do: so any two designs may
stream. How late the second starts follows from when the first has written each tile, and when the second first asks
for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from allo_dse.backends.fpga.fifo import fifo_resources
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES, Resources
from allo_dse.eval.fpga.passages import Passage, passages

from .fronts import Fronts, Point
from .network import Arrange, Network, Step
from .operators.execute import interface, loaded
from .operators.work import Work
from .solver.problem import TICK_US, Edge

FLOATS = {("bfloat", 16), ("float", 32)}
"""Kinds and bits of types that streams carry."""
TABLE_BITS = 32
TOKEN_CYCLES = 3
"""To hear that a tile is there, in a loop that is not pipelined: its condition, a table and a FIFO."""
Lags = tuple[tuple[int | None, ...], ...]


def edges_of(fronts: Fronts) -> tuple[Edge, ...]:
    """The pairs of operators between which a tensor may be a stream: no other one reads it, it is no output of the
    network, and at most free rearrangements lie between them. None for an NPU."""
    return tuple(_edges(fronts, fronts.device)) if isinstance(fronts.device, FpgaDevice) else ()


def written_as(network: Network) -> dict[str, str]:
    """By tensors that one step alone reads, and that are no outputs, those that lie where they do, as written."""
    readers = Counter(name for step in network.steps for name in step.inputs)
    found: dict[str, str] = {}
    for step in network.steps:
        if readers[step.output] != 1 or step.output in network.outputs:
            continue
        if not isinstance(step.work, Arrange) or not step.work.free:
            found[step.output] = step.output
        elif step.inputs[0] in found:
            found[step.output] = found[step.inputs[0]]
    return found


def stream_ends(written: Mapping[str, str], source: Step, target: Step) -> tuple[str, str]:
    """What their programs call the tensor that one writes and the other reads.

    Args:
        written: as `written_as` has it.
    """
    assert isinstance(source.work, Work)
    assert isinstance(target.work, Work)
    position = [written.get(name) for name in target.inputs].index(source.output)
    return interface(loaded(source.work))[1][0].name, interface(loaded(target.work))[0][position].name


def _edges(fronts: Fronts, device: FpgaDevice) -> Iterator[Edge]:
    moved = {key: [_passages(point) for point in points] for key, points in fronts.points.items()}
    known: dict[tuple[str, str, int], tuple[Resources, Lags] | None] = {}
    written_by: dict[str, list[int]] = {}
    for number, one in enumerate(fronts.candidates):
        written_by.setdefault(one.step.output, []).append(number)
    tensors = written_as(fronts.network)
    for number, target in enumerate(fronts.candidates):
        for position, name in enumerate(target.step.inputs):
            for other in written_by.get(tensors.get(name, ""), []):
                key = fronts.candidates[other].key, target.key, position
                if key not in known:
                    written = [_port(p, m, None) for p, m in zip(fronts.points[key[0]], moved[key[0]], strict=True)]
                    read = [_port(p, m, position) for p, m in zip(fronts.points[key[1]], moved[key[1]], strict=True)]
                    known[key] = _stream(device, written, read)
                if (stream := known[key]) is not None:
                    saved = device.external.adapter.resources * 2
                    saves = (getattr(saved, one) - getattr(stream[0], one) for one in RESOURCES)
                    yield Edge(other, number, (0, *saves), stream[1])


def _passages(point: Point) -> Mapping[str, Passage]:
    return passages(point.design.design, point.design.metrics["stream_depths"])


def _port(point: Point, moved: Mapping[str, Passage], position: int | None) -> Passage | None:
    """How a design reads its tensor at a position, or writes its result."""
    reads, writes = interface(point.design.design.program)
    return moved.get((writes[0] if position is None else reads[position]).name)


def _stream(
    device: FpgaDevice, written: list[Passage | None], read: list[Passage | None]
) -> tuple[Resources, Lags] | None:
    """What any design of some takes to receive a tensor, and the lags; None where no two can stream."""
    ticks = 1 / (device.clock_ghz * 1e3 * TICK_US)
    lags = tuple(
        tuple(
            math.ceil(lag_cycles(device, source, target) * ticks)
            if source and target and _fit(source, target)
            else None
            for target in read
        )
        for source in written
    )
    parts = [_receiving(device, one) for one in written if one is not None]
    if not parts or all(lag is None for row in lags for lag in row):
        return None
    most = {name: max(getattr(one, name) for one in parts) for name in RESOURCES}
    return Resources(**most), lags


def lag_cycles(device: FpgaDevice, written: Passage, read: Passage) -> int:
    """From the start of who writes a tensor to that of who reads it, after which that never waits for it."""
    behind = int((written.by_element - read.by_element).max())
    return max(1, behind + device.external.latency_cycles + TOKEN_CYCLES * written.moved)


def _fit(written: Passage, read: Passage) -> bool:
    """Whether words of one are words of the other: as many floats, of the same type."""
    one, other = written.tensor.dtype, read.tensor.dtype
    return (one.kind, one.bits) in FLOATS and one == other and written.lanes == read.lanes


def _receiving(device: FpgaDevice, written: Passage) -> Resources:
    """The process that receives a tensor, its memory, the FIFO that says which tiles are there, and the tables of where
    each belongs and when it is asked for."""
    arrays, bits = device.arrays, written.tensor.dtype.bits * written.lanes
    words = math.prod(written.tensor.shape) // written.lanes
    memory = Resources(bram18=arrays.bram18(words, bits))
    if device.limit("uram"):
        memory = Resources(uram=math.ceil(words / arrays.uram_words) * math.ceil(bits / arrays.uram_bits))
    table = Resources(bram18=arrays.bram18(written.moved, TABLE_BITS))
    said, load = fifo_resources(device, 1, written.moved), device.external.load.resources
    return Resources.total([memory, table, table, said, load])
