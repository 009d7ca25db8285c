"""FPGAs for networks: all operators in one configuration, with streams between them.

A stream arrives in the order in which it is written. The reading kernel buffers it in a memory of its own and serves
its tasks from there in any order, so any two designs can stream. The lag follows from the times at which the source
has written each tile and the target first asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES, Resources
from allo_dse.eval.launches import UNLIMITED, Launches, Stream
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from .bound_times import Passage, passages
from .choices.schedules import ScheduleParameter, lanes, memory, pack
from .cost.memory import BRAM18_BITS, fifo_resources
from .mapping import FpgaMapping

FLOATS = {("bfloat", 16), ("float", 32)}
"""Kinds and bits of types that streams carry."""
TABLE_BITS = 32
WORD_LANES = (2, 8, 32)
LANE_COUNTS = (1, 2, 4, 8, 16, 32)
"""Elements that operations on tiles compute at once; 32 narrow floats are as wide as an AXI port."""
TOKEN_CYCLES = 3
"""Cycles to learn that a tile has arrived, in a loop that is not pipelined: its condition, a table and a FIFO."""


class FpgaLaunches(Launches):
    """Launches on an FPGA: a single one, whose operators keep their hardware."""

    device: FpgaDevice
    resources = RESOURCES
    most = 1
    linked = True
    # With an objective for each resource, few designs dominate others, and the same trials find slower ones.
    objectives = ("latency_us", "utilization")

    def __init__(self, device: FpgaDevice) -> None:
        super().__init__(device)
        self.limits = (UNLIMITED, *(device.limit(name) for name in RESOURCES))
        self.ports = device.external.ports
        self.table_bits = device.limit("bram18") * BRAM18_BITS
        self.dram_gb_s = self.ports * device.external.port_gb_s

    def schedules(self, program: Program, tables: Collection[str] = ()) -> list[ScheduleParameter]:
        """Leave tensors that tasks cut into tiles in DRAM, without those that the bitstream has."""
        kept = [one for one in in_dram(program) if one.target not in tables]
        return [*kept, *(ScheduleParameter("place", name, "memory", ("rom",)) for name in tables)]

    def passages(self, design: Design, metrics: Mapping[str, Any]) -> Mapping[str, Passage]:
        """Return when the tiles of each tensor in DRAM are written or asked for."""
        return passages(design, metrics["stream_depths"])

    def stream(
        self, written: Sequence[Passage | None], read: Sequence[Passage | None], tick_us: float
    ) -> Stream | None:
        """Return the resources that streaming a tensor saves over ports to DRAM, and the lags."""
        ticks = 1 / (self.device.clock_ghz * 1e3 * tick_us)
        lags = tuple(
            tuple(
                math.ceil(lag_cycles(self.device, source, target) * ticks)
                if source
                and target
                and source.lanes == target.lanes
                and (dtype := source.tensor.dtype) == target.tensor.dtype
                and (dtype.kind, dtype.bits) in FLOATS
                else None
                for target in read
            )
            for source in written
        )
        parts = [_receiving(self.device, one) for one in written if one is not None]
        if not parts or all(lag is None for row in lags for lag in row):
            return None
        bits, adapter = self.device.external.port_bits, self.device.external.adapter
        ports = adapter.of(bits, reads=True) + adapter.of(bits, reads=False)
        most = {name: max(getattr(one, name) for one in parts) for name in RESOURCES}
        return Stream(tuple(getattr(ports, name) - most[name] for name in RESOURCES), lags)

    def moved_bytes(self, design: Design, tensor: str) -> int:
        """Return the bytes of a tensor in DRAM that a design moves, counting repeated copies."""
        mapping = FpgaMapping.of(design)
        return mapping.moved_bytes(mapping.streamed[tensor])


def in_dram(program: Program) -> list[ScheduleParameter]:
    """Tensors that tasks cut into tiles stay in DRAM; what all share is copied once, such as the weights of a norm.

    Two elements of a tile move in a cycle, as many as a memory has ports; of the largest tensor, such as the
    weights of a product, more if operations on tiles compute several at once, whose arrays have banks. Blocks of
    weights come in the widest words.
    """
    ports = [port for own in program.task_classes for port in own.tensor_ports]
    cut = {p.tensor.name: p.tensor for p in ports if any(map(p.tile.depends_on, range(len(p.tile.matrix[0]))))}
    sizes = {name: math.prod(tensor.shape) for name, tensor in cut.items()}
    largest = [name for name, size in sizes.items() if size == max(sizes.values())]
    are_blocks = len(largest) > 2 and not any(port.writes for port in ports if port.tensor.name in largest)
    packed = []
    for name, tensor in cut.items():
        counts = (
            WORD_LANES if largest == [name] else WORD_LANES[-1:] if are_blocks and name in largest else WORD_LANES[:1]
        )
        packed.append(pack(name, [n * tensor.dtype.bits for n in counts]))
    return [*(memory(name, ["dram"]) for name in cut), *packed, lanes(LANE_COUNTS)]


def lag_cycles(device: FpgaDevice, written: Passage, read: Passage) -> int:
    """Return the cycles from the writer's start to the reader's after which the reader never waits."""
    behind = int((written.by_element - read.by_element).max())
    return max(1, behind + device.external.latency_cycles + TOKEN_CYCLES * written.moved)


def _receiving(device: FpgaDevice, written: Passage) -> Resources:
    """Return the resources to receive a tensor.

    They are for the process, its memory, the FIFO of arrived tiles, and two tables: where each tile belongs, and when
    it is needed.
    """
    arrays, bits = device.arrays, written.tensor.dtype.bits * written.lanes
    words = math.prod(written.tensor.shape) // written.lanes
    memory = Resources(bram18=arrays.bram18(words, bits))
    if device.limit("uram"):
        memory = Resources(uram=math.ceil(words / arrays.uram_words) * math.ceil(bits / arrays.uram_bits))
    table = Resources(bram18=arrays.bram18(written.moved, TABLE_BITS))
    external = device.external
    said, load = fifo_resources(device, 1, written.moved), external.load.resources(external.port_bits)
    return Resources.total([memory, table, table, said, load])
