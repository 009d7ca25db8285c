"""Times of a program's tasks on an FPGA, of their waits, and of their tensors' copies, whatever the fold.

Designs with different schedules share much of this: copies depend only on rates, and the times of tasks by themselves
only on their costs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import MOST_KEPT, Frozen, once
from allo_dse.compiler.program.tensors import IntArray, StreamArray, Tensor, TensorPort, ends_of
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import External
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.kernel_graph import StreamEdges
from allo_dse.mapper.graph.program_graph import ProgramGraph, TensorPieces
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.space.design import Design

from .cost.loops.events import Again, Part, Pipe, cycles_of
from .cost.task_cost import TaskCost
from .mapping import FpgaMapping
from .network import fpga_network
from .shared_costs import AlikeTasks, Scheduled, SharedCosts, TensorUse

_HANDOVER = 1  # cycles from a put to the get of its token, at least (T4 of docs/timing.md)
_MOST_HOPS = 64  # streams along which a first token is followed: any number of them gives a bound
_MOST_WORDS = 1 << 22  # size of the caches, in tasks times arrays of streams

Times = NDArray[np.int64]


class ProgramTimes:
    """Data for the bounds of one program's designs on one device.

    Each part is computed once for all designs that agree in its inputs.
    """

    def __init__(self, graph: ProgramGraph, device: FpgaDevice) -> None:
        self._shared, program = graph.once(SharedCosts, device), graph.program
        self._most = max(1, min(MOST_KEPT, _MOST_WORDS // (program.task_count * (1 + len(program.streams)))))
        self._copies: dict[Hashable, Copies] = {}
        self._paths: dict[Hashable, Paths] = {}
        self._paths_of: dict[Scheduled, Paths] = {}

    def copies(self, scheduled: Scheduled) -> Copies:
        """Copies of tensors between DRAM and the chip."""
        shared = self._shared

        def made() -> Copies:
            uses = {use.tensor.name: use for use in scheduled.tensors if use.is_copied}
            return Copies(uses, shared.pieces, shared.device.external)

        return once(self._copies, scheduled.copies_key, made, self._most)

    def paths(self, scheduled: Scheduled) -> Paths:
        """Return the earliest begin of each task, and its time from then.

        Raises:
            SimulationError: if control depends on data.
        """
        return once(self._paths_of, scheduled, lambda: self._made_paths(scheduled), self._most)

    def _made_paths(self, scheduled: Scheduled) -> Paths:
        alike, copies = self._shared.alike(0), self.copies(scheduled)
        costs = [scheduled.cost(cls, pid, 0) for cls, pid, *_ in alike]
        moves = bool(scheduled.streamed or scheduled.edged.streams)  # tasks move elements or tiles
        key = copies, moves, tuple((cost.parts, cost.operations) for cost in costs)

        def made() -> Paths:
            own = OwnTimes.of(scheduled, alike, costs, copies)
            return Paths.of(self._shared.graph.edges, alike, copies, own)

        return once(self._paths, key, made, self._most)


class Copies(Frozen, eq=False, dict=True):
    """Copies of tensors between DRAM and the chip.

    Attributes:
        uses: of the tensors that are copied, by name.
    """

    uses: Mapping[str, TensorUse]
    pieces: TensorPieces
    external: External

    @cached_property
    def cycles_of_tiles(self) -> dict[str, IntArray]:
        """By tensor, cycles of its AXI port for each of its pieces."""
        found = {}
        for name, words in self.pieces.words.items():
            if name in self.uses:
                found[name] = np.full(math.prod(self.pieces.grids[name]), self.uses[name].cycles(words), np.int64)
        return found

    def passing(self, port: TensorPort) -> int:
        """Cycles in which a task moves its tile between the FIFO of its node and its own memory."""
        use = self.uses.get(port.tensor.name)
        return use.cycles(math.prod(port.tile_shape)) if use and use.place == "dram" else 0

    @cached_property
    def arrivals(self) -> dict[str, IntArray]:
        """By tensor, when each tile that is read is on the chip at the earliest."""
        found = {}
        for name, cycles in self.cycles_of_tiles.items():
            # In the order of copying, and as if the port served no other tensor: no tile can be there sooner.
            found[name], tiles = np.zeros_like(cycles), self.pieces.reads[name]
            own = cycles[tiles] if self.uses[name].place == "dram" else np.cumsum(cycles[tiles])
            found[name][tiles] = self.external.latency_cycles + own
        return found

    @cached_property
    def cycles(self) -> int:
        """Time of the copies alone: tensors that share an AXI port are copied in turn."""
        busy, longest = defaultdict[int, int](int), 0
        for position, name in enumerate(self.uses):
            for tiles in (self.pieces.reads[name], self.pieces.writes[name]) if name in self.pieces.words else ():
                own = int(self.cycles_of_tiles[name][tiles].sum())
                busy[self.external.port_of(position)] += own
                longest = max(longest, own + self.external.latency_cycles if len(tiles) else 0)
        return max([longest, *busy.values()])


class OwnTimes(Frozen, eq=False):
    """Times of tasks that never wait, in cycles, by task number. They depend on no fold.

    Attributes:
        whole: time of each task.
        first_put, last_get: by array of streams and task, the time until it has put a token into one of its streams,
            and until it has taken one from each; not finite if it never does.
        operations: arithmetic operations of all tasks.
        begins, ends: of each task, the wait for the first elements that it reads from DRAM one by one, and the time
            from its end until those that it writes are there.
    """

    whole: Times
    first_put: NDArray[np.float64]
    last_get: NDArray[np.float64]
    operations: int
    begins: Times
    ends: Times

    @classmethod
    def of(
        cls, scheduled: Scheduled, alike: Sequence[AlikeTasks], costs: Sequence[TaskCost], copies: Copies
    ) -> OwnTimes:
        program = scheduled.program
        streams, count, operations = program.streams, program.task_count, 0
        number = {stream.name: n for n, stream in enumerate(streams)}
        edges = {stream.name: copies.uses.get(name) for name, stream in scheduled.edged.streams.items()}
        whole, begins, ends = np.zeros((3, count), np.int64)
        latency_cycles = copies.external.latency_cycles
        puts, gets = np.full((2, len(streams), count), np.nan)
        for (own, _, tasks, _), cost in zip(alike, costs, strict=True):
            before, after = (
                max((copies.passing(port) for port in own.tensor_ports if getattr(port, does)), default=0)
                for does in ("reads", "writes")
            )
            whole[tasks], at = before + cost.cycles + after, use_times(cost.parts)
            left = use_times(cost.parts, last=True)
            operations += cost.operations * len(tasks)
            for port, binding in enumerate(scheduled.edged_class(own).body.streams):
                assert not isinstance(binding, StreamArray)  # the cost model refuses bodies that compute stream numbers
                if (name := binding.stream.name) in number:
                    for times, kind, sooner in ((puts, "put", np.fmin), (gets, "get", np.fmax)):
                        if (kind, port) in at:
                            times[number[name], tasks] = sooner(times[number[name], tasks], before + at[kind, port])
                elif use := edges.get(name):
                    if ("get", port) in at:
                        wait = latency_cycles + _HANDOVER - before - at["get", port]
                        begins[tasks] = np.maximum(begins[tasks], wait)
                    if ("put", port) in left:
                        wait = _HANDOVER + 1 + use.tail_cycles(latency_cycles) - left["put", port] - after
                        ends[tasks] = np.maximum(ends[tasks], wait)
        return cls(whole, puts, gets, operations, begins, ends)


class Paths(Frozen, eq=False):
    """Waiting times of tasks, as arrays by task number. Times are cycles.

    Attributes:
        begins: begin of each task if it waits for its tiles and the first token of each of its streams.
        ends: time to copy its results.
        kept_begins, kept_ends: arrival of the tiles that its node copies before the first of its tasks, and time to
            copy the results that leave after the last.
    """

    own: OwnTimes
    begins: Times
    ends: Times
    kept_begins: Times
    kept_ends: Times

    @classmethod
    def of(cls, edges: StreamEdges, alike: Sequence[AlikeTasks], copies: Copies, own: OwnTimes) -> Paths:
        kept, passing = (_with_tiles(alike, copies, place, len(own.whole)) for place in ("auto", "dram"))
        begins, ends = (np.maximum.reduce(every) for every in zip(kept, passing, (own.begins, own.ends), strict=True))
        return cls(own, _with_streams(edges, own, begins), ends, *kept)

    def cycles(self, vmg: VMG) -> int:
        """Return the time of the slowest node of a folded graph from the first copy to the last."""
        longest = 0
        for group in vmg.groups:
            tasks = group.leaves.tasks()
            # A node runs its tasks one after the other: when its first could begin, plus the work of all, plus the copy
            # of its last result. The minima leave open which task is first and which is last.
            begin = np.maximum(self.begins[tasks].min(1), self.kept_begins[tasks].max(1))
            end = np.maximum(self.ends[tasks].min(1), self.kept_ends[tasks].max(1))
            longest = max(longest, int((begin + self.own.whole[tasks].sum(1) + end).max()))
        return longest


def _with_tiles(alike: Sequence[AlikeTasks], copies: Copies, place: str, count: int) -> tuple[Times, Times]:
    """Return the time at which each task has its tiles of tensors in a place, and the time to copy its results.

    Of "auto" a node has the tiles of all its tasks, of "dram" those at work.
    """
    begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    tensors = {name for name, use in copies.uses.items() if use.place == place}
    for cls, _, tasks, pids in alike:
        ports = [port for port in cls.tensor_ports if port.tensor.name in tensors]
        # A task sends its results to its node's FIFOs at the same time: one that is sent sooner is stored meanwhile.
        longest = max((copies.passing(port) for port in cls.tensor_ports if port.writes), default=0)
        for port in ports:
            piece = ends_of(port, pids, copies.pieces.grids[port.tensor.name])[1]
            if port.reads:
                begins[tasks] = np.maximum(begins[tasks], copies.arrivals[port.tensor.name][piece] + _HANDOVER)
            if port.writes:
                last = copies.cycles_of_tiles[port.tensor.name][piece] + copies.external.latency_cycles + _HANDOVER
                sooner = longest - own if (own := copies.passing(port)) else 0
                ends[tasks] = np.maximum(ends[tasks], last - sooner)
    return begins, ends


def _with_streams(edges: StreamEdges, own: OwnTimes, begins: Times) -> Times:
    """Return the begin of tasks that wait for the first token of each stream and for nothing else."""
    if not len(edges):
        return begins
    lead = own.first_put[edges.array, edges.source] - own.last_get[edges.array, edges.target] + _HANDOVER
    known = np.isfinite(lead)
    source, target, lead = edges.source[known], edges.target[known], lead[known].astype(np.int64)
    # Longest paths (Bellman 1958): a consumer begins no earlier than the tokens that it gets allow. Times only grow
    # towards the true ones, so they are bounds at any number of iterations.
    for _ in range(_MOST_HOPS):
        later = begins.copy()
        np.maximum.at(later, target, begins[source] + lead)
        if (later == begins).all():
            break
        begins = later
    return begins


def use_times(parts: Sequence[Part], *, last: bool = False) -> Mapping[tuple[str, int], int]:
    """Return the first use of each stream by parts that never wait, by direction and stream argument.

    Args:
        last: of the last use instead, the time from there to the end.
    """
    found: dict[tuple[str, int], int] = {}
    clock = 0
    for part in reversed(parts) if last else parts:
        if isinstance(part, Pipe) and part.rounds:
            for stage, kind, port in sorted(part.ops, reverse=last):
                found.setdefault((kind, port), clock + (part.depth - stage if last else stage))
        elif isinstance(part, Again) and part.count:
            for use, at in use_times(part.parts, last=last).items():
                found.setdefault(use, clock + at)
        clock += cycles_of((part,))
    return found


# Times at which a design has written, or first needs, each part of a tensor that moves in tiles.


class Passage(Frozen):
    """Passage of a tensor that stays in DRAM, tile by tile.

    Attributes:
        cycles: by tile, in the shape of the grid of tiles: when the whole tile has been written, or when it is first
            requested.
        tile_shape: of each tile.
        moved: number of tile copies.
        lanes: elements copied per cycle.
    """

    tensor: Tensor
    cycles: IntArray
    tile_shape: tuple[int, ...]
    moved: int
    lanes: int

    @property
    def by_element(self) -> IntArray:
        """`cycles` of the tile of each element, row-major: (elements,)."""
        whole_tiles = np.ones(self.tile_shape, np.int64)
        return np.broadcast_to(np.kron(self.cycles, whole_tiles), self.tensor.shape).ravel()


def passages(design: Design, depths: Mapping[str, int]) -> dict[str, Passage]:
    """Return the passages of tensors in DRAM that nodes with several tasks use, by name.

    Only tensors that move in tiles of one shape are included. A written one must be written once, and not read.

    Args:
        depths: of the design's streams.

    Raises:
        SimulationError: if the design deadlocks at these depths.
    """
    mapping, found = FpgaMapping.of(design).at(depths), {}
    if design.vmg.node_count == design.vmg.task_count or len(mapping.runs) > 1:
        return {}
    network = fpga_network(mapping, depths, logged=True)
    result = table_engine().run(network.network)
    if not result.finished:
        raise SimulationError("the design deadlocks at its stream depths")
    classes = list(design.program.task_classes)
    for name, use in mapping.streamed.items():
        ports = [port for own in classes for port in own.tensor_ports if port.tensor.name == name]
        if len(use.directions) > 1 or len({(port.tile.grid, port.tile_shape) for port in ports}) > 1:
            continue
        (does,) = use.directions
        tiles = design.vmg.uses.deliveries(name, does).tile
        ends = result.process_log(network.deliveries[name, does])
        grid, shape = ports[0].tile.grid, ports[0].tile_shape
        cycles = np.full(math.prod(grid), -1)
        # The first move of a tile counts; a request ends when the tile has been moved.
        cycles[tiles[::-1]] = ends[::-1] - use.cycles(math.prod(shape)) * use.reads
        if (cycles >= 0).all() and (use.reads or len(tiles) == len(cycles)):
            found[name] = Passage(use.tensor, cycles.reshape(grid), shape, len(tiles), use.lanes)
    return found
