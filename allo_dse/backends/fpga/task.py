"""A task class on an FPGA: what it does when, its loops, and its resources.

cost = task_cost(program, task_class, device, directives)
cost.parts          # Wait, Pipe and Again: what the simulator's tables are written from
cost.loops          # LoopCost per pipelined loop: trips, II, depth, cycles, what limits it
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.errors import SimulationError
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive
from allo_dse.program.tasks import TaskClass

from .asap import StreamEvent, Walk
from .linear import Linear, holds
from .memory import Storage
from .nest import Branch, Op, read_nest
from .pipeline import Flat, Pipelined, build, flatten
from .plan import Item, Planned, plan_of, planned
from .recurrence import promoted

_ARITHMETIC = ("add", "add_fabric", "mul", "div", "sqrt", "exp")
_NO_VARIABLE = -(1 << 40)
_MOST_EVENTS = 1 << 14  # stream operations of one repetition that are told apart


@dataclass(frozen=True)
class Measured:
    """What an HLS report says of a pipelined loop, which then holds instead of the model."""

    ii: int
    depth: int


@dataclass(frozen=True)
class Wait:
    """Nothing but time."""

    cycles: int


@dataclass(frozen=True)
class Pipe:
    """A pipelined loop: `ops` are (stage, "get" or "put", stream argument)."""

    rounds: int
    ii: int
    depth: int
    ops: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Again:
    """Parts that are repeated."""

    count: int
    parts: tuple[Part, ...]


Part: TypeAlias = Wait | Pipe | Again


@dataclass(frozen=True)
class LoopCost:
    """A pipelined loop as an HLS report would list it.

    Attributes:
        names: of the loops that were flattened into it, outermost first; "" for loops of tile operations.
        cycles: of one execution. times: how often it is executed.
        limit: what its interval comes from.
    """

    names: tuple[str, ...]
    trips: int
    ii: int
    depth: int
    cycles: int
    times: int
    limit: str


@dataclass(frozen=True)
class TaskCost:
    """What one task takes.

    Attributes:
        logic: operators, registers and control.
        storages: its arrays, arguments included. operations: arithmetic ones; a multiply-add is two.
    """

    parts: tuple[Part, ...]
    loops: tuple[LoopCost, ...]
    logic: Resources
    storages: Mapping[str, Storage]
    operations: int

    @property
    def cycles(self) -> int:
        """Cycles without waiting for streams."""
        return _cycles(self.parts)


def _cycles(parts: Iterable[Part]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Wait):
            total += part.cycles
        elif isinstance(part, Pipe):
            total += (part.rounds - 1) * part.ii + part.depth if part.rounds else 0
        else:
            total += part.count * _cycles(part.parts)
    return total


def task_cost(
    program: CompiledProgram,
    task_class: TaskClass,
    device: FpgaDevice,
    directives: Sequence[Directive] = (),
    pid: Sequence[int] = (),
    measured: Mapping[int, Measured] | None = None,
) -> TaskCost:
    """Times and resources of the tasks of a class.

    Args:
        directives: beside those of the program.
        pid: of the task, where its loops depend on that.
        measured: by value number of the variable of a pipelined loop, intervals and depths that are known;
            then no other loop is pipelined by directives.

    Raises:
        SimulationError: where control depends on data.
    """
    nest = read_nest(task_class.body.mlir)
    if nest.unsupported:
        raise SimulationError(
            f"{task_class.kernel} ({task_class.name}): no static times: {nest.unsupported}",
            hint="the FPGA cost model needs control flow that does not depend on data",
        )
    plan = plan_of(program, task_class, nest, directives)
    pids = dict(zip(nest.pids, pid, strict=False))
    items = planned(nest.body, plan, pids, device.hls.unroll_up_to, measured or ())
    task = _Task(device, plan.storages, pids, measured or {})
    parts = task.block(items, 1, outermost=True)
    logic = task.logic()
    return TaskCost(parts, tuple(task.loops), logic, plan.storages, task.operations)


@lru_cache(maxsize=4096)
def depends_on_pid(mlir: str) -> bool:
    """Whether tasks of one class differ in trip counts or in the rounds in which they use streams."""
    nest = read_nest(mlir)
    pids = set(nest.pids)

    def uses(form: Linear | None) -> bool:
        return form is not None and any(v in pids for v, _ in form.terms)

    def search(nodes: Iterable[object]) -> bool:
        for node in nodes:
            if isinstance(node, Branch):
                if (node.test is not None and uses(node.test[1])) or search(itertools.chain(*node.sides)):
                    return True
            elif not isinstance(node, Op) and (
                uses(node.trips) or uses(node.lower) or search(node.body)  # type: ignore[attr-defined]
            ):
                return True
        return False

    return search(nest.body)


class _Task:
    """Builds one task."""

    def __init__(
        self,
        device: FpgaDevice,
        storages: Mapping[str, Storage],
        pids: Mapping[int, int],
        measured: Mapping[int, Measured],
    ) -> None:
        self.device = device
        self.measured = measured
        self.storages = storages
        self.pids = pids
        self.loops: list[LoopCost] = []
        self.operations = 0
        self._pipelines: list[Pipelined] = []
        self._sequential = 0
        self._states = 0
        self._straight: list[Pipelined] = []

    def block(self, items: Sequence[Item], times: int, *, outermost: bool = False) -> tuple[Part, ...]:
        """Parts of a block: loops one after the other, with what stands between them."""
        parts: list[Part] = []
        straight: list[Item] = []
        for item in items:
            moved = isinstance(item, Op) and item.block
            if moved or (isinstance(item, Planned) and item.mode != "unroll") or _has_loops(item):
                parts += self._straight_line(straight)
                straight = []
                parts += self._own_time(item, times, outermost=outermost)
            else:
                straight.append(item)
        return (*parts, *self._straight_line(straight))

    def _own_time(self, item: Item, times: int, *, outermost: bool) -> list[Part]:
        """A loop, or a block that is moved; inside another loop it costs the call of a module as well."""
        call = [] if outermost else [Wait(self.device.hls.call_extra)]
        if isinstance(item, Op):
            return [*self._moved(item), *call]
        if isinstance(item, Branch):
            sides = [self.block(side, times, outermost=outermost) for side in item.sides]  # type: ignore[arg-type]
            if any(_has_streams(side) for side in sides):
                raise SimulationError("a loop with stream operations under a condition has no static times")
            return [Wait(max(_cycles(side) for side in sides))]
        assert isinstance(item, Planned)
        flat = flatten(item, self.storages)
        if flat is not None:
            return [*self._pipelined(flat, times), *call]
        self._sequential += 1
        inner = self.block(item.body, times * max(1, item.trips))
        return [Again(item.trips, inner), Wait(self.device.hls.loop_extra), *call]

    def _pipelined(self, flat: Flat, times: int) -> list[Part]:
        pipelined = build(flat, self.device, self.storages)
        known = self.measured.get(flat.loops[-1].variable)
        if known is not None:
            pipelined = pipelined.at(known.ii, known.depth)
        self._pipelines.append(pipelined)
        self.operations += times * flat.trips * sum(copies * _weight(unit.kind) for unit, copies in pipelined.units)
        extra = self.device.hls.loop_extra
        names = tuple(loop.name for loop in flat.loops)
        self.loops.append(
            LoopCost(names, flat.trips, pipelined.ii, pipelined.depth, pipelined.cycles + extra, times, pipelined.limit)
        )
        moved = [Wait(2)] if promoted(flat.loops[-1], self.storages) else []  # an element is loaded, and stored again
        return [*moved, self._pipe(pipelined), Wait(extra)]

    def _pipe(self, pipelined: Pipelined) -> Part:
        """A pipelined loop as a repetition of its shortest part in which the same stream operations return."""
        flat, ii, depth = pipelined.flat, pipelined.ii, pipelined.depth
        if not pipelined.events or not flat.trips:
            return Wait(pipelined.cycles)
        level = len(flat.loops) - 1
        deepest = max(event.level for event in pipelined.events)
        inner = math.prod(loop.trips for loop in flat.loops[deepest + 1 :])
        first = self._repeats_from(pipelined, deepest)
        ops: list[tuple[int, str, int]] = []
        spans = [range(loop.trips) for loop in flat.loops[first : deepest + 1]]
        if math.prod(len(s) for s in spans) * len(pipelined.events) > _MOST_EVENTS:
            raise SimulationError("stream operations under a condition in a long loop have no compact timing")
        rounds = math.prod(len(s) for s in spans)
        for number, position in enumerate(itertools.product(*spans)):
            at = {
                loop.variable: loop.first + p * loop.step
                for loop, p in zip(flat.loops[first : deepest + 1], position, strict=True)
            }
            for event in pipelined.events:
                if self._happens(event, at, flat, first, position, deepest):
                    late = (inner - 1) * ii if event.after or (event.level == level and inner > 1) else 0
                    ops.append((number * inner * ii + late + event.stage, event.kind, event.stream))
        outer = math.prod(loop.trips for loop in flat.loops[:first])
        return Pipe(outer, rounds * inner * ii, (rounds * inner - 1) * ii + depth, tuple(ops))

    def _repeats_from(self, pipelined: Pipelined, deepest: int) -> int:
        """The outermost level whose rounds differ in their stream operations."""
        flat = pipelined.flat
        first = deepest + 1
        for event in pipelined.events:
            first = min(first, event.level + 1)
            for (predicate, form), _ in event.tests:
                if predicate == "data" or not isinstance(form, Linear):
                    raise SimulationError("stream operations under a condition on data have no static times")
                levels = [n for n, loop in enumerate(flat.loops) if form.factor(loop.variable)]
                first = min([first, *levels])
        return first

    def _happens(
        self,
        event: StreamEvent,
        at: Mapping[int, int],
        flat: Flat,
        first: int,
        position: tuple[int, ...],
        deepest: int,
    ) -> bool:
        """Whether a stream operation is done in a round."""
        within = position[max(0, event.level + 1 - first) :]
        spans = flat.loops[max(first, event.level + 1) : deepest + 1]
        edge = tuple(loop.trips - 1 for loop in spans) if event.after else (0,) * len(spans)
        if within != edge:
            return False
        known = {**self.pids, **at, **dict(event.copies)}
        for (predicate, form), side in event.tests:
            assert isinstance(form, Linear)
            value = form.value(known)
            if value is None:
                raise SimulationError("stream operations under a condition on an outer loop have no static times")
            if holds(predicate, value) != side:
                return False
        return True

    def _straight_line(self, items: list[Item]) -> list[Part]:
        """Operations outside loops, one after the other."""
        if not items:
            return []
        once = build(_once(items), self.device, self.storages)
        if any(isinstance(item, Planned) for item in items):  # unrolled loops: memory ports count
            self._pipelines.append(once)
            return [Wait(once.cycles)] if not once.events else [self._pipe(once)]
        self._straight.append(once)
        walk = Walk(self.device, self.storages)
        walk.block(items)
        self._states += walk.finish + 1
        if not walk.events:
            return [Wait(walk.finish)] if walk.finish else []
        ops = []
        for event in walk.events:
            if event.tests and not self._holds(event):
                continue
            ops.append((event.stage, event.kind, event.stream))
        return [Pipe(1, 1, walk.finish + 1, tuple(ops))]

    def _holds(self, event: StreamEvent) -> bool:
        for (predicate, form), side in event.tests:
            value = form.value({**self.pids, **dict(event.copies)}) if isinstance(form, Linear) else None
            if value is None:
                raise SimulationError("stream operations under a condition on data or a loop have no static times")
            if holds(predicate, value) != side:
                return False
        return True

    def _moved(self, op: Op) -> list[Part]:
        """A block between array and stream, an element per cycle."""
        assert op.stream is not None
        assert op.direction is not None
        cycles = op.block + self.device.hls.loop_extra
        move: list[Part] = [Wait(cycles)]
        token = Pipe(1, 1, 1, ((0, op.direction, op.stream),))
        self._states += 2
        return [token, *move] if op.direction == "get" else [*move, token]

    def logic(self) -> Resources:
        """Operators, registers and control. Loops that run one after the other share operators in DSPs."""
        shared: dict[str, Resources] = {}
        total = Resources()
        for pipelined in (*self._pipelines, *self._straight):
            for unit, copies in pipelined.units:
                needed = unit.resources * math.ceil(copies / pipelined.span)
                if unit.resources.dsp:
                    known = shared.get(unit.kind, Resources())
                    shared[unit.kind] = needed if needed.dsp > known.dsp else known
                else:
                    total = total + needed
        rules = self.device.hls
        loops = sum(len(p.flat.loops) for p in self._pipelines) + self._sequential
        # A pipelined loop has a state per cycle of its interval, and remembers which of its rounds are under way.
        states = sum(p.ii + math.ceil(p.depth / p.ii) for p in self._pipelines) + self._states
        control = Resources(
            ff=rules.loop_ff * loops + rules.state_ff * states + sum(p.registers for p in self._pipelines),
            lut=rules.loop_lut * loops + rules.state_lut * states + sum(p.muxes for p in self._pipelines),
        )
        return Resources.total([total, control, *shared.values()])


def _once(items: Sequence[Item]) -> Flat:
    """Operations outside loops as a loop of one round."""
    return Flat((Planned(_NO_VARIABLE, "", 1, 0, 1, "pipeline", 1, tuple(items)),), (), ())


def _weight(kind: str) -> int:
    """Arithmetic operations that an operator counts as."""
    if kind.startswith("mac"):
        return 2
    return int(kind.startswith(("mul", "arith.addi", "arith.subi")) or kind.rpartition(".")[2] in _ARITHMETIC)


def _has_loops(item: Item) -> bool:
    if isinstance(item, Branch):
        return any(
            (isinstance(inner, Planned) and inner.mode != "unroll")
            or (isinstance(inner, Op) and inner.block > 0)
            or (isinstance(inner, Branch) and _has_loops(inner))
            for side in item.sides
            for inner in side
        )
    return False


def _has_streams(parts: Iterable[Part]) -> bool:
    return any(
        (isinstance(part, Pipe) and bool(part.ops)) or (isinstance(part, Again) and _has_streams(part.parts))
        for part in parts
    )
