"""Runs of a mapping on an FPGA, at given stream depths or at the smallest that cost no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from allo_dse.common.errors import SimulationError, TimeLimitError
from allo_dse.common.records import Frozen, replace
from allo_dse.eval.execute.observation import Inputs, arrays_of
from allo_dse.eval.execute.run import run_graph
from allo_dse.eval.token_exchange import exchange_depths
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.frames import repeated
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network

from ..mapping import FpgaMapping
from ..network import SMALLEST_DEPTH, FpgaNetwork, fpga_network, labels_of

if TYPE_CHECKING:
    from allo_dse.simulator.depths.front import DepthFront

_DEEP = 1 << 16  # deeper streams are not built
_MOST_SLOTS = 1 << 22  # of all streams together, which bounds the memory of a simulation
_GROWTH = 8
FRAMES = 8  # in a row, after which designs are taken to go on as they do
_LONG_FRAME = 1 << 17  # cycles, beyond which fewer frames are simulated
_FEW_FRAMES = 2
_MOST_TURNS = 2_000_000  # of the scheduler, in which frames in a row are to end
_WORTHWHILE = 0.999  # deeper streams are worth their memory when they save a thousandth of the time


def hopeless(network: FpgaNetwork, result: RunResult, arrays: Sequence[str]) -> SimulationError:
    """Return the error for a design that deadlocks at any depths."""
    waiting = result.deadlock.cycle if result.deadlock else ()
    numbers = dict.fromkeys(network.wiring.array[one.stream] for one in waiting if one.stream < network.fifos)
    circle = f": its tasks wait for each other at {' and '.join(arrays[n] for n in numbers)}" if numbers else ""
    return SimulationError(
        f"the design deadlocks at any stream depth{circle}",
        hint="HLS may begin a put and a get after it in one cycle, and waits with both: put a round ahead of what "
        "comes back. A pipelined loop that waits holds up what its earlier rounds have still to put: it needs an "
        'interval as long as that takes, pipeline("kernel:loop", [8])',
    )


class Timed(Frozen):
    """A mapping with the network that it was simulated as."""

    mapping: FpgaMapping
    network: FpgaNetwork
    result: RunResult


def run(mapping: FpgaMapping, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
    """Simulate a mapping at these depths.

    Raises:
        DeadlockError: if it deadlocks; it names tasks, streams, lines and the depths that clear it.
    """
    network = fpga_network(mapping, depths)
    result = table_engine().run(network.network, extrapolate=True)
    if not result.finished:
        result.require_finished(labels_of(mapping, network))
    return network, result


def timed_runs(
    mapping: FpgaMapping, depths: Mapping[str, int] | None, least: Callable[[FpgaMapping], int] = lambda _: 0
) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """The program's runs on given inputs, or its only one, at these depths, solved ones without; and the depths.

    Args:
        least: cycles that a mapping takes at any depths.

    Raises:
        SimulationError: if one deadlocks.
    """
    if depths is None:
        return solve_depths(mapping, least)
    return dict(depths), tuple(Timed(one, *run(one, depths)) for one in mapping.runs)


def solve_depths(
    mapping: FpgaMapping, least: Callable[[FpgaMapping], int] = lambda _: 0
) -> tuple[dict[str, int], tuple[Timed, ...]]:
    """Stream depths at which the design is within a thousandth as fast as with any deeper ones; and the runs with them.

    Depths grow together until time no longer falls; then each is searched below, array by array. Where the program has
    several runs on given inputs, each stream is as deep as the one that needs most.

    Raises:
        SimulationError: for a program that deadlocks at any depth.
    """
    most, solvers = most_tokens(mapping), solvers_of(mapping)
    deepest = dict.fromkeys(most, 0)
    for one, solver in zip(mapping.runs, solvers, strict=True):
        depths = solver.grow(most, least(one))
        for name in most:
            depths[name] = solver.shrink(depths, name)
            deepest[name] = max(deepest[name], depths[name])
    runs = zip(mapping.runs, solvers, strict=True)
    return deepest, tuple(Timed(one, *solver.run(deepest)) for one, solver in runs)


def deadlock_at_any_depths(mapping: FpgaMapping) -> str:
    """Return the tasks that wait for each other however deep their streams are; empty if there are none."""
    most = most_tokens(mapping)
    for solver in solvers_of(mapping):
        network, result = solver.run(most)
        if not result.finished:
            return hopeless(network, result, solver.arrays).message
    return ""


def solvers_of(mapping: FpgaMapping) -> list[DepthSolver]:
    """Return a solver for each of a mapping's runs."""
    shallow = dict.fromkeys(most_tokens(mapping), SMALLEST_DEPTH)
    return [DepthSolver(fpga_network(one, shallow), list(shallow)) for one in mapping.runs]


class DepthSolver:
    """Times one network at many depths."""

    def __init__(self, network: FpgaNetwork, arrays: list[str]) -> None:
        self.network = network
        self.arrays = arrays
        self._limit = 0
        self._done: dict[tuple[int, ...], tuple[FpgaNetwork, RunResult]] = {}

    def run(self, depths: Mapping[str, int]) -> tuple[FpgaNetwork, RunResult]:
        """Return the network with these depths, and the result of its simulation."""
        key = tuple(depths[name] for name in self.arrays)
        if key not in self._done:
            depth, per_array = self.network.network.depth.copy(), np.array(key, np.int64)
            # FIFOs inside a folded node are buffers, whose size follows from the order of its tasks.
            depth[: self.network.fifos] = np.maximum(per_array[self.network.wiring.array], self.network.inside)
            network = replace(self.network, network=self.network.network.with_depths(depth))
            self._done[key] = network, table_engine().run(network.network, extrapolate=True)
        return self._done[key]

    def grow(self, most: Mapping[str, int], least: int = 0) -> dict[str, int]:
        """Return the first of a series of depths after which more room saves no time.

        No room saves time once a run is close to its least possible cycles.
        """
        depths = {name: min(limit, SMALLEST_DEPTH) for name, limit in most.items()}
        _, result = self.run(depths)
        while any(depths[name] < limit for name, limit in most.items()):
            if result.finished and least > _WORTHWHILE * result.cycles:
                break
            more = {name: min(limit, _GROWTH * depths[name]) for name, limit in most.items()}
            _, other = self.run(more)
            if result.finished and other.cycles > _WORTHWHILE * result.cycles:
                break
            depths, result = more, other
        if not result.finished:
            raise hopeless(self.network, result, self.arrays)
        self._limit = int(result.cycles / _WORTHWHILE)
        return depths

    def shrink(self, depths: Mapping[str, int], name: str) -> int:
        """The smallest depth of one array that costs no more than that thousandth: about what it held at most."""
        low, high = SMALLEST_DEPTH, depths[name]
        network, result = self.run(depths)
        own = network.between == self.arrays.index(name)
        held = int(result.occupancy[: network.fifos][own].max(initial=0))  # by any FIFO between nodes
        depth, step = min(high - 1, max(low, held)), 1
        while low < high:
            _, result = self.run({**depths, name: depth})
            if result.finished and result.cycles <= self._limit:
                high, depth, step = depth, depth - step, 2 * step
            else:
                low, depth = depth + 1, high - step
            depth = max((low + high) // 2, depth)
        return high


def frame_metrics(one: Timed, depths: Mapping[str, int]) -> dict[str, int | bool]:
    """Return `sustained` and `interval_cycles`, the cycles from the end of one frame to the end of the next.

    Frames in a row never deadlock at depths at which one ends, if it leaves its streams as they were: each process does
    the same stream operations in the same order in any case, so how far frames overlap does not decide whether they end
    (Kahn 1974). Tokens that frames leave over fill any stream; such frames are not sustained and have no interval. Runs
    that take too many turns of the scheduler are given up, and their interval is unknown.

    Args:
        one: a frame, at these depths.
    """
    network, result, vmg = one.network.network, one.result, one.mapping.vmg
    costs = (one.mapping.cost(cls, pid) for cls, pid, *_ in one.mapping.shared.alike(one.mapping.run))
    if vmg.node_count == vmg.task_count and any(cost.interval for cost in costs):
        network = fpga_network(one.mapping, depths, frames=True).network
        result = table_engine().run(network, extrapolate=True)
    if (result.puts != result.gets).any():
        return {"sustained": False}
    is_long = result.cycles > _LONG_FRAME
    try:
        several = _frames(network, _FEW_FRAMES if is_long else FRAMES)
        fewer = result if is_long else _frames(network, FRAMES - 1)
    except TimeLimitError:
        return {"sustained": True}
    return {"sustained": True, "interval_cycles": int(several.cycles - fewer.cycles)}


def _frames(network: Network, frames: int) -> RunResult:
    """Run a network for frames in a row: each node begins its next frame when it has done one."""
    return table_engine().limited(repeated(network, frames), _MOST_TURNS)


def most_tokens(mapping: FpgaMapping) -> dict[str, int]:
    """Per stream array a depth that holds everything that is ever put into one of its FIFOs."""
    tokens = dict.fromkeys(mapping.shared.streams, SMALLEST_DEPTH)
    for task_class in mapping.vmg.program.task_classes:
        for port in task_class.stream_ports:
            tokens[port.stream.name] = max(tokens[port.stream.name], port.tokens or _DEEP)
    merged = -(-mapping.vmg.task_count // max(1, mapping.vmg.node_count))  # streams that a fold makes one
    deepest = max(SMALLEST_DEPTH, min(_DEEP, _MOST_SLOTS // max(1, mapping.vmg.program.stream_count)))
    return {name: min(deepest, merged * count) for name, count in tokens.items()}


def known_depths(
    mapping: FpgaMapping,
    how: Literal["solve", "declared"],
    front_of: Callable[[FpgaMapping], DepthFront],
) -> Mapping[str, int] | None:
    """Return the depths by array that a design sets, or those of least memory within its allowed slowdown.

    None for the smallest that cost no time.
    """
    if mapping.depths or how == "declared":
        return dict(mapping.depths or {})
    if mapping.slowdown is None or not mapping.fifos:
        return None
    least = dict.fromkeys(mapping.shared.streams, SMALLEST_DEPTH)
    return least | dict(front_of(mapping).within(mapping.slowdown).depths)


# Depths at which a design also ends without overlap of rounds.
#
# Pipelines of the cost model hold tokens: a loop gets those of later rounds before it has put those of earlier ones.
# Executed C++ and circuits without pipelines do one operation after the other, and may need deeper FIFOs.


def in_program_order(vmg: VMG, depths: Mapping[str, int], sets: Sequence[Inputs] = ()) -> dict[str, int]:
    """Return the depths by stream array, increased if tasks would deadlock when they execute in program order.

    They stay as they are where no depth helps.

    Args:
        sets: of inputs that the program runs on where data decides what it does; zeros without.
    """
    if (needed := exchange_depths(vmg, depths)) is not None:
        return {**depths, **needed.depth}
    found = dict(depths)
    for inputs in sets or ({},):
        try:
            found = _deeper(vmg, found, inputs)
        except SimulationError:
            return dict(depths)
    return found


def _deeper(vmg: VMG, depths: dict[str, int], inputs: Inputs) -> dict[str, int]:
    arrays = arrays_of(vmg.program, inputs)
    try:
        run_graph(vmg, *arrays, depths=depths, values=bool(inputs))
    except DeadlockError as error:
        if not error.deeper:
            raise
        return _deeper(vmg, depths | error.deeper, inputs)
    return depths
