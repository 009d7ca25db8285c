"""A task class on an FPGA: timing, loops, and resources.

cost = task_cost(program, task_class, device, directives)
cost.parts          # Wait, Pipe and Again: what the simulator's tables are written from
cost.loops          # LoopCost per pipelined loop: trips, II, depth, cycles, what limits it
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, cast

from allo_dse.common.records import MOST_SMALL_KEPT, Frozen, Ints, replace
from allo_dse.compiler.ir.affine import Linear, decided
from allo_dse.compiler.ir.nest import Access, Branch, Op, loops_of, ops_of, outermost, read_nest, walk
from allo_dse.compiler.program.compiled import CompiledProgram, Directive, TaskClass
from allo_dse.compiler.program.tensors import SourceLoop
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.eval.execute.observed_control import DataTest, Observed

from .body_walk import accesses, asks_data, control_forms, has_loops, partitioned, stream_ops
from .loops.binding import by_array
from .loops.control import address_logic, counter_control, fsm, loop_control, port_muxes
from .loops.effects import ArrayUse, effects_of
from .loops.events import Again, Part, Pipe, StreamEvent, Wait, cycles_of, in_turn, uses_streams
from .loops.loop_round import KnownRounds
from .loops.pipeline import Flat, Pipelined, build, flatten
from .loops.rounds import Rounds
from .loops.schedule import Walk
from .memory import MOST_COPIES, Accesses, Memories, Storage, addresses_of, copies_of
from .operators import Unit
from .plan import Item, Plan, Planned, Planner, place_of, planned, refusal
from .simplify import PACKED, simplified

# Dataflow inside a task: the nests of a function run concurrently, connected by buffers or FIFOs.


class Process(Frozen):
    """Unit that runs as a whole: a nest of the function, or all nests of a function that it calls.

    Attributes:
        first: cycles until what it makes first is there: those of a round of its outermost loop.
        reads, writes: names of arrays, and of parts of them, as `A[0, 1]`.
    """

    cycles: int
    first: int
    reads: frozenset[str]
    writes: frozenset[str]


def processes(items: Sequence[Item], sources: Sequence[SourceLoop]) -> list[list[Item]]:
    """Return the items of a function by process; items between nests belong to the next one."""
    found: list[list[Item]] = []
    before: tuple[str, int] | None = None
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        loops = (one.source for one in walk((item,)) if isinstance(one, Planned))
        loop = next((source for source in loops if source is not None), None)
        if loop is None:
            continue
        source = sources[loop]
        call = (source.function, source.call) if source.call else None
        if found and call is not None and call == before:
            found[-1] += waiting
        else:
            found.append(waiting)
        before, waiting = call, []
    if waiting and found:
        found[-1] += waiting
    return found or [waiting]


def process_of(items: Sequence[Item], cycles: int, storages: Mapping[str, Storage]) -> Process:
    """Return the process of some items. Elements of arrays that are split into them count as arrays of their own."""
    rounds = max((item.trips for item in items if isinstance(item, Planned)), default=1)
    reads, writes = set[str](), set[str]()
    for access, values in accesses(items, {}):
        (writes if access.write else reads).update(_parts(access, storages[access.array], values))
    return Process(cycles, math.ceil(cycles / max(1, rounds)), frozenset(reads), frozenset(writes))


def overlapped(chain: Sequence[Process], fifos: Collection[str]) -> tuple[int, int]:
    """Cycles of processes that run at once, in program order, and from frame to frame.

    The cycles of a frame are those of the longest way through buffers and FIFOs. A buffer is handed on as a whole, when
    the process that fills it has ended. Through a FIFO a process gets what the one before has made so far: it starts a
    round later, and ends a round after that at the earliest.

    Frames follow each other in the time of the longest process, or half the time for which a buffer is held from its
    first store to its last load, as it has two banks.
    """
    starts: list[int] = []
    ends: list[int] = []
    writers: dict[str, list[int]] = {}
    interval = max((process.cycles for process in chain), default=0)
    for number, process in enumerate(chain):
        start = end = 0
        shared = {name: writers.get(name, ()) for name in process.reads | process.writes}
        handed = {before for name, found in shared.items() if _array(name) in fifos for before in found}
        waited = {before for name, found in shared.items() if _array(name) not in fifos for before in found}
        for before in waited:
            start = max(start, ends[before])
        for before in handed - waited:
            start = max(start, starts[before] + chain[before].first)
            end = max(end, ends[before] + process.first)
        starts.append(start)
        ends.append(max(start + process.cycles, end))
        interval = max([interval, *(math.ceil((ends[-1] - starts[before]) / 2) for before in waited)])
        for name in process.writes:
            writers.setdefault(name, []).append(number)
    return max(ends, default=0), interval


def handed_on(
    chain: Sequence[Process], storages: Mapping[str, Storage], fifos: Mapping[str, int]
) -> dict[str, Storage]:
    """The task's own arrays that one process fills and another reads: double buffers, or FIFOs."""
    found = {}
    later = set[str]()
    for process in reversed(chain):
        for name in {_array(part) for part in process.writes & later}:
            if storages[name].array.argument is None:
                found[name] = replace(storages[name], buffers=2, fifo_depth=fifos.get(name, 0))
        later |= process.reads
    return found


def _array(part: str) -> str:
    """The array that a part belongs to."""
    return part.partition("[")[0]


def _parts(access: Access, storage: Storage, values: Mapping[int, range]) -> Iterator[str]:
    """The array that an access uses, or its parts where some dimensions are split into single elements."""
    shape = storage.array.shape
    split = [dim for dim, cut in enumerate(storage.splits) if cut is not None and cut.factor == shape[dim]]
    if not split:
        yield access.array
        return
    for index in product(*(_values(access.index[dim], shape[dim], values) for dim in split)):
        yield f"{access.array}{list(index)}"


def _values(form: Linear | None, extent: int, values: Mapping[int, range]) -> Collection[int]:
    """The values of an index."""
    if form is None or not form.variables <= values.keys():
        return range(extent)
    own = {variable: values[variable] for variable in form.variables}
    if copies_of(own) > MOST_COPIES:
        return range(extent)
    return set(addresses_of([form], own).ravel().tolist()) & set(range(extent))


_ARITHMETIC = ("add", "add_fabric", "mul", "div", "sqrt", "exp")
_NO_VARIABLE = -(1 << 40)
_MOST_ROUNDS = 1 << 16  # of loops whose rounds differ


@dataclass(frozen=True)
class Measured:
    """Interval and depth of a pipelined loop in an HLS report, which replace the model's."""

    ii: int
    depth: int


class LoopCost(Frozen):
    """A pipelined loop as an HLS report would list it.

    Attributes:
        names: of the loops that were flattened into it, outermost first; "" for loops of tile operations.
        trips: rounds of one execution, of the longest where they differ; cycles: what it takes.
        times: how often it is executed. rounds: of all executions together.
        limit: what its interval comes from.
        variable: value number of the innermost loop's variable.
    """

    names: tuple[str, ...]
    trips: int
    ii: int
    depth: int
    cycles: int
    times: int
    limit: str
    rounds: int = 0
    variable: int = -1


class TaskCost(Frozen):
    """Time and resources of one task.

    Attributes:
        logic: operators, registers and control.
        storages: its arrays, arguments included.
        operations: arithmetic operations; a multiply-add is two.
        not_pipelined: loops that a directive asks to pipeline and the tool does not, with the reason.
        interval: cycles from frame to frame, where nests that run at once overlap frames; else 0.
    """

    parts: tuple[Part, ...]
    loops: tuple[LoopCost, ...]
    logic: Resources
    storages: Mapping[str, Storage]
    operations: int
    not_pipelined: tuple[tuple[str, str], ...] = ()
    interval: int = 0

    @property
    def cycles(self) -> int:
        """Cycles without waiting for streams."""
        return cycles_of(self.parts)

    def with_arguments(self, names: Mapping[str, str], storages: Mapping[str, Storage]) -> TaskCost:
        """Return the cost of a task with the same code on other arguments.

        Args:
            names: theirs, by the names of those here.
            storages: of all arrays of the other task.
        """
        own = {name: one for name, one in self.storages.items() if one.array.argument is None}
        limits = {f"ports of {one}": f"ports of {other}" for one, other in names.items()}
        loops = tuple(replace(loop, limit=limits.get(loop.limit, loop.limit)) for loop in self.loops)
        return replace(self, loops=loops, storages={**storages, **own})

    def arrays(self, device: FpgaDevice, copies: tuple[int, ...]) -> Resources:
        """Return the resources of its arrays, each in `copies` copies."""
        pairs = zip(self.storages.values(), copies, strict=True)
        return Resources.total(storage.resources(device, count) for storage, count in pairs if count)


def task_cost(
    program: CompiledProgram,
    task_class: TaskClass,
    device: FpgaDevice,
    directives: Sequence[Directive] = (),
    pid: Sequence[int] = (),
    measured: Mapping[int, Measured] | None = None,
    observed: Observed | None = None,
) -> TaskCost:
    """Times and resources of the tasks of a class.

    Args:
        directives: beside those of the program.
        pid: of the task, where its loops depend on that.
        measured: by value number of the variable of a pipelined loop, intervals and depths that are known;
            then no other loop is pipelined by directives.
        observed: what control that depends on data did in a run; without, such tasks are refused.

    Raises:
        StaticControlError: where control depends on data.
    """
    plan = Planner(program, task_class, simplified(task_class.body.mlir)).plan(directives)
    return planned_cost(task_class, KnownRounds(device), plan, pid, measured, observed)


def planned_cost(
    task_class: TaskClass,
    rounds: KnownRounds,
    plan: Plan,
    pid: Sequence[int] = (),
    measured: Mapping[int, Measured] | None = None,
    observed: Observed | None = None,
) -> TaskCost:
    """Return the cost of a task under a plan of its class.

    Raises:
        StaticControlError: where control depends on data.
    """
    nest = simplified(task_class.body.mlir)
    if nest.unsupported is not None:
        place = place_of(task_class, nest.unsupported.loop, nest.unsupported.op)
        raise refusal(nest.unsupported.reason, place)
    pids = dict(zip(nest.pids, pid, strict=False))
    if measured or observed is not None:
        items = planned(nest.body, plan, pids, rounds.device.hls.pipeline_loops, measured or (), observed)
    else:
        items = rounds.planned(task_class, plan, pids)
    task = _Task(task_class, rounds, plan, measured or {}, observed)
    task.storages = partitioned(items, plan.storages)
    parts = task.whole(items, pids)
    if observed is not None:
        observed.require_used()
    asked = {number for number, said in plan.loops.items() if said.interval is not None}
    loops = (one for one in walk(items) if isinstance(one, Planned) and one.mode == "sequential")
    lost = tuple(
        (loop.name, f"the trip count of {inner} inside it varies, so that it cannot be unrolled")
        for loop in loops
        if loop.source in asked
        for inner in [next((one.name for one in outermost(loop.body) if one.varies), "")]
    )
    return TaskCost(parts, task.loops, task.logic(), task.storages, task.operations, lost, task.interval)


@lru_cache(maxsize=4096)
def deciding_pids(mlir: str) -> tuple[bool, ...]:
    """Return the process ids that decide trip counts, or the rounds that use streams, among tasks of one class."""
    nest = read_nest(mlir)
    used = {variable for form in control_forms(nest.body) for variable in form.variables}
    return tuple(pid in used for pid in nest.pids)


@lru_cache(maxsize=MOST_SMALL_KEPT)
def control_key(mlir: str, pid: tuple[int, ...]) -> Hashable:
    """Return a key that is equal for tasks of one class with equal trip counts and equal rounds that use streams."""
    pids, used, counted = _control(mlir)
    values = dict(zip(pids, pid, strict=True))
    lengths = (cast(int, length.value(values)) for length, _ in counted)
    trips = tuple(max(0, -(-n // step)) for n, (_, step) in zip(lengths, counted, strict=True))
    return tuple(values[own] for own in pids if own in used), trips


@lru_cache(maxsize=4096)
def _control(mlir: str) -> tuple[Ints, Set[int], Sequence[tuple[Linear, int]]]:
    """Return process ids, variables that decide on control, and lengths and steps of loops that ids alone decide.

    Of these nothing reads the variable, so only how often they run counts.
    """
    nest = read_nest(mlir)
    forms = Counter(control_forms(nest.body))
    read = {v for form in forms for v in form.variables}
    for op in ops_of(nest.body):
        index = op.access.index if op.access is not None else ()
        read.update(*(form.variables for form in (op.constant, op.factor, *index) if form is not None))
    counted = []
    for loop in loops_of(nest.body):
        lower, upper = loop.lower, loop.upper
        if lower is None or upper is None or loop.step <= 0 or loop.variable in read:
            continue
        if lower.variables | upper.variables <= {*nest.pids}:
            forms.subtract((lower, upper))
            counted.append((upper + lower.scaled(-1), loop.step))
    return nest.pids, {v for form in +forms for v in form.variables}, counted


class Called(Frozen):
    """A pipelined loop among the operations of a block.

    Attributes:
        loop: variable of the innermost one, or a number of a block that moves.
        early: first state that it can begin in, after loads that its rounds have in common.
    """

    loop: int
    footprint: ArrayUse
    parts: tuple[Part, ...]
    early: int = 0


class _Task:
    """Builds one task.

    Attributes:
        operations: arithmetic ones of the task.
        _used: by operator, the states in which loops or operations need some, and how many each.
    """

    def __init__(
        self,
        task_class: TaskClass,
        rounds: KnownRounds,
        plan: Plan,
        measured: Mapping[int, Measured],
        observed: Observed | None,
    ) -> None:
        self.task_class = task_class
        self.device = rounds.device
        self.rounds = rounds
        self.measured = measured
        self.observed = observed
        self.plan = plan
        self.storages = plan.storages
        self.operations = self.interval = 0
        self._loops: dict[int, LoopCost] = {}
        self._pipelines: dict[Hashable, Pipelined] = {}
        self._walks: dict[Hashable, tuple[Walk, list[int], int]] = {}
        self._straight: list[Mapping[str, Accesses]] = []
        self._sequential: dict[int, int] = {}
        self._used = defaultdict[Unit, dict[Hashable, Counter[Hashable]]](lambda: defaultdict(Counter))
        self._states: dict[Hashable, int] = {}
        self._rounds = 0

    @property
    def loops(self) -> tuple[LoopCost, ...]:
        """Pipelined loops in program order."""
        return tuple(self._loops.values())

    def whole(self, items: Sequence[Item], pids: Mapping[int, int]) -> tuple[Part, ...]:
        """Parts of the task.

        Under `dataflow` its nests run concurrently, and pass data through double buffers or FIFOs.
        """
        if not self.plan.overlaps:
            return self.block(items, 1, pids, outermost=True)
        groups = processes(items, self.plan.sources)
        parts = [self.block(group, 1, pids, outermost=True) for group in groups]
        if any(map(uses_streams, parts)):
            return tuple(part for group in parts for part in group)
        chain = [process_of(group, cycles_of(own), self.storages) for group, own in zip(groups, parts, strict=True)]
        self.storages = {**self.storages, **handed_on(chain, self.storages, self.plan.fifos)}
        cycles, self.interval = overlapped(chain, self.plan.fifos)
        return (Wait(cycles),)

    def block(
        self,
        items: Sequence[Item],
        times: int,
        variables: Mapping[int, int],
        *,
        outermost: bool = False,
        state: Hashable = -1,
    ) -> tuple[Part, ...]:
        """Return the parts of a block: loops one after the other, with the items between them.

        Args:
            times: how often the block is executed.
            variables: values of process ids, and of those loops around it on which its control depends.
            state: that the block begins in.
        """
        parts: list[Part] = []
        run: list[Item | Called] = []
        for item in items:
            moved = isinstance(item, Op) and item.block
            if not (moved or (isinstance(item, Planned) and item.mode != "unroll") or has_loops(item)):
                run.append(item)
                continue
            item = self._resolved(item, variables)
            straight = [one for one in run if not isinstance(one, Called)]
            flat = flatten(item, self.storages, self.rounds, variables, straight) if isinstance(item, Planned) else None
            if flat is not None:
                made = tuple(self._pipelined(flat, times, variables))
                # Of loads that rounds have in common the first is in the state that ends the loop before; inside a loop
                # it follows the state that tests the end of that, and the last one is awaited.
                early = self._pipelines[flat.loops[-1].variable].early
                early += early and (-1 if outermost else 1)
                run.append(Called(flat.loops[-1].variable, flat.round.footprint, made, early))
            elif moved:
                assert isinstance(item, Op)
                assert item.access is not None
                array = frozenset((item.access.array,))
                run.append(Called(id(item), ArrayUse(array, array, array | {""}), tuple(self._moved(item))))
            else:
                parts += self._in_turn(run, variables, state)
                run, state = [], id(item)
                if isinstance(item, Planned):
                    # The state that tests the end of a loop begins its body, or what follows it.
                    state = item.variable
                    parts += [*self._repeated(item, times, variables), Wait(self.device.hls.loop_extra)]
                elif isinstance(item, Branch):
                    parts += self._chosen(item, times, variables, outermost=outermost)
        return (*parts, *self._in_turn(run, variables, state))

    def _in_turn(self, run: Sequence[Any], variables: Mapping[int, int], state: Hashable) -> list[Part]:
        """Return the parts of operations, and pipelined loops between them, from a state on."""
        straight = (item for item in run if not isinstance(item, Called))
        if self.device.hls.overlaps_loops and not any(isinstance(i, Planned) or any(stream_ops(i)) for i in straight):
            return self._scheduled(run, variables, state)
        parts: list[Part] = []
        for _, group in itertools.groupby(run, key=lambda item: isinstance(item, Called) and id(item)):
            chunk = list(group)
            parts += self._scheduled(chunk, variables, id(chunk[0]) if parts else state)
        return parts

    def _scheduled(self, run: Sequence[Any], variables: Mapping[int, int], state: Hashable) -> list[Part]:
        """Return the parts of operations and loops that each begin as soon as what they need is there.

        A loop is a module that one state starts and one awaits; operations that do not need it go on meanwhile.
        """
        loops = [item for item in run if isinstance(item, Called)]
        place = tuple(item.loop if isinstance(item, Called) else id(item) for item in run)
        # Ports of memories count.
        if any(isinstance(item, Planned) or (isinstance(item, Op) and item.name in PACKED) for item in run):
            if place not in self._pipelines:
                whole = Planned(_NO_VARIABLE, "", 1, 0, 1, "pipeline", 1, tuple(run))
                flat = Flat((whole,), self.rounds.of((), (), whole.body, ()))
                self._pipelines[place] = build(flat, self.storages, fabric=self.plan.fabric)
            return Rounds(self.task_class, variables, self.observed).parts(self._pipelines[place])
        if place not in self._walks:
            self._walks[place] = self._walked(run)
            code = [item for item in run if not isinstance(item, Called)]
            self._straight.append(by_array(effects_of(code).uses))
        walk, starts, states = self._walks[place]
        parts: list[Part] = []
        begun = 0
        for start in sorted(set(starts)):
            at_once = [loop for loop, at in zip(loops, starts, strict=True) if at == start]
            for loop, at in itertools.product(at_once, (start, start + 1)):
                built = self._pipelines.get(loop.loop)
                self._use(built.operators if built else (), (place, at) if at else state, loop.loop)
            first = max((loop.parts for loop in at_once), key=uses_streams)
            beyond = max(cycles_of(loop.parts) for loop in at_once) - cycles_of(first)
            parts += [Wait(max(0, start - begun)), *first, Wait(beyond)]
            begun = start + 2
        for (unit, at), count in walk.started.items():
            self._use([(unit, count)], (place, at) if at or not unit.is_shared else state, (place, at))
        self._states[place] = states
        answers: dict[DataTest, bool] = {}
        happens = [event for event in walk.events if self._holds(event, variables, answers)]
        if happens:
            return [Pipe(1, 1, walk.finish + 1, tuple((event.stage, event.kind, event.stream) for event in happens))]
        return [*parts, Wait(max(0, states - begun))]

    def _walked(self, run: Sequence[Any]) -> tuple[Walk, list[int], int]:
        """Return the times of operations, the states that start the loops, and how many states there are."""
        walk = Walk(self.device, Memories.of(self.storages, self.device), self.plan.fabric)
        starts: list[int] = []
        for is_loop, group in itertools.groupby(run, key=lambda item: isinstance(item, Called)):
            if is_loop:
                starts += [walk.call(loop.footprint, loop.early) for loop in group]
            else:
                walk.block(list(group))
        end = max(starts, default=-2) + 2
        # Values that need no state of their own are ready with those around them.
        return walk, starts, max(end, *walk.busy.values(), walk.finish + (walk.finish > end))

    def _shares(self, unit: Unit) -> bool:
        """Return whether operations outside one loop share an operator."""
        in_turn = unit.is_shared or not self.device.hls.overlaps_loops
        return unit.resources.dsp > 0 and in_turn and not self.plan.overlaps

    def _use(self, operators: Iterable[tuple[Unit, int]], state: Hashable, user: Hashable) -> None:
        """Note that a loop or operation needs operators in a state."""
        for unit, count in operators:
            if self._shares(unit):
                self._used[unit][state][user] = count

    def _resolved(self, item: Item, variables: Mapping[int, int]) -> Item:
        """Return a loop with its trip count."""
        if not isinstance(item, Planned):
            return item
        item = item.at(variables)
        if item.site >= 0 and self.observed is not None:
            first, trips = self.observed.loop(item.site, item.step)
            item = replace(item, first=first, trips=trips)
        return item

    def _chosen(self, item: Branch, times: int, variables: Mapping[int, int], *, outermost: bool) -> list[Part]:
        """Return the loops under a condition: those of its side, or of the slower side if data decides."""
        holds = decided(item.test, variables)
        if item.test is None and self.observed is not None:
            holds = bool(self.observed.holds(item.site, 1)[0])
        if holds is not None:
            return list(self.block(item.sides[not holds], times, variables, outermost=outermost))  # type: ignore[arg-type]
        sides = [self.block(side, times, variables, outermost=outermost) for side in item.sides]  # type: ignore[arg-type]
        if any(uses_streams(side) for side in sides):
            event = next(stream_ops(item), None)
            place = place_of(self.task_class, op=None if event is None else event.op)
            raise refusal("whether this stream operation happens depends on data", place)
        return [Wait(max(cycles_of(side) for side in sides))]

    def _repeated(self, loop: Planned, times: int, variables: Mapping[int, int]) -> tuple[Part, ...]:
        """Return the parts of a loop that is not pipelined: equal rounds as one repetition, else one by one."""
        self._sequential[loop.variable] = loop.trips
        if not any(loop.variable in form.variables for form in control_forms(loop.body)) and not asks_data(loop.body):
            return (Again(loop.trips, self.block(loop.body, times * loop.trips, variables, state=loop.variable)),)
        self._rounds += loop.trips
        if self._rounds > _MOST_ROUNDS:
            source = next((s for s in self.task_class.loops if s.name == loop.name), None)
            raise refusal(
                f"more than {_MOST_ROUNDS:,} rounds of this loop differ from each other",
                source.location if source else self.task_class.location,
                hint="make the bounds of loops inside it depend on fewer loops around them",
            )
        values = range(loop.first, loop.first + loop.trips * loop.step, loop.step)
        inside = [{**variables, loop.variable: value} for value in values]
        return in_turn([self.block(loop.body, times, one, state=loop.variable) for one in inside])

    def _pipelined(self, flat: Flat, times: int, variables: Mapping[int, int]) -> list[Part]:
        key = flat.loops[-1].variable
        if key not in self._pipelines:
            built = build(flat, self.storages, fabric=self.plan.fabric)
            known = self.measured.get(key)
            self._pipelines[key] = built.at(known.ii, known.depth) if known is not None else built
        pipelined = self._pipelines[key]
        if pipelined.flat is not flat:
            pipelined = replace(pipelined, flat=flat)
        self.operations += times * flat.trips * sum(copies * _weight(unit.kind) for unit, copies in pipelined.units)
        self._count(pipelined, times)
        # An element that the loop keeps in a register is loaded before it, and stored after it.
        moved = [Wait(2)] if flat.round.promoted(self.storages) - flat.round.begun else []
        return [
            *moved,
            *Rounds(self.task_class, variables, self.observed).parts(pipelined),
            Wait(self.device.hls.loop_extra),
        ]

    def _count(self, loop: Pipelined, times: int) -> None:
        """Add executions of a loop."""
        flat, key = loop.flat, loop.flat.loops[-1].variable
        names = tuple(level.name for level in flat.loops)
        cycles = loop.cycles + self.device.hls.loop_extra
        own = LoopCost(names, flat.trips, loop.ii, loop.depth, cycles, times, loop.limit, times * flat.trips, key)
        other = self._loops.get(key, own)
        if other is not own:
            times, rounds = own.times + other.times, own.rounds + other.rounds
            own = replace(max(own, other, key=lambda cost: cost.trips), times=times, rounds=rounds)
        self._loops[key] = own

    def _holds(self, event: StreamEvent, variables: Mapping[int, int], answers: dict[DataTest, bool]) -> bool:
        """Return whether a stream operation outside loops happens; `answers` caches the outcome of tests."""
        known = {**variables, **dict(event.copies)}
        for test, side in event.tests:
            if isinstance(test, DataTest):
                if test not in answers and self.observed is not None:
                    answers[test] = bool(self.observed.holds(test.site, 1)[0])
                found = answers.get(test)
            else:
                found = decided(test, known)
            if found is None:
                place = place_of(self.task_class, op=event.op)
                raise refusal("whether this stream operation happens depends on data", place)
            if found != side:
                return False
        return True

    def _moved(self, op: Op) -> list[Part]:
        """A block of several words between array and stream, an element per cycle."""
        assert op.stream is not None
        assert op.direction is not None
        cycles = math.prod(op.block) + self.device.hls.loop_extra
        move: list[Part] = [Wait(cycles)]
        token = Pipe(1, 1, 1, ((0, op.direction, op.stream),))
        self._states[id(op)] = 2
        return [token, *move] if op.direction == "get" else [*move, token]

    def logic(self) -> Resources:
        """Operators, registers and control. Loops that run one after the other share operators in DSPs."""
        built, walks = self._pipelines.values(), [walk for walk, *_ in self._walks.values()]
        every = itertools.chain(*(p.operators for p in built), *(walk.units() for walk in walks))
        parts = [(unit.resources, count) for unit, count in every if not self._shares(unit)]
        choices = 0
        for unit, states in self._used.items():
            parts.append((unit.resources, max(users.total() for users in states.values())))
            # A loop needs its operators in two states.
            choices += sum(users.total() for users in states.values()) // 2 * (len(states) > 2)
        rules = self.device.hls
        control = [loop_control(rules, p.flat.loops, p.ii, p.depth) for p in self._pipelines.values()]
        for p in self._pipelines.values():
            once = p.flat.round
            control.append(address_logic(rules, once.accesses, self.storages, math.ceil(p.depth / p.ii)))
            control.append(address_logic(rules, once.early_addresses, self.storages))
        control += [address_logic(rules, group, self.storages) for group in self._straight]
        control += [counter_control(rules, trips) for trips in self._sequential.values()]
        # Each loop is a module that a state starts and one awaits.
        control.append(fsm(rules, sum(self._states.values()) + sum(p.early for p in self._pipelines.values())))
        muxes = sum(p.muxes for p in built) + port_muxes(rules, self._users())
        # Operands of operators that several loops share are chosen.
        muxes += round(rules.mux_lut_per_input * 3 * choices)
        registers = sum(p.registers for p in built) + sum(walk.live_bits() for walk in walks)
        held = Resources(ff=registers, lut=muxes)
        return Resources.weighted([*parts, *((one, 1) for one in control), (held, 1)])

    def _users(self) -> dict[str, tuple[int, int, int]]:
        """Return by memory the loops, and pieces of code between them, that use it or store to it, and their ports."""
        found: dict[str, tuple[int, int, int]] = {}
        rounds = [p.flat.round for p in self._pipelines.values()]
        pieces: list[Any] = [({a: len(uses) for a, uses in r.accesses.items()}, r.whole.stored) for r in rounds]
        pieces += [(walk.loads + walk.stores, walk.stores.keys()) for walk, *_ in self._walks.values()]
        for uses, stored in pieces:
            for array, count in uses.items():
                if not self.storages[array].in_registers:
                    users, stores, ports = found.get(array, (0, 0, 0))
                    most = min(count, self.device.arrays.ports)
                    found[array] = users + 1, stores + (array in stored), max(ports, most)
        return found


def _weight(kind: str) -> int:
    """Arithmetic operations that an operator counts as."""
    if kind.startswith("mac"):
        return 2
    return int(kind.startswith(("mul", "arith.addi", "arith.subi")) or kind.rpartition(".")[2] in _ARITHMETIC)
