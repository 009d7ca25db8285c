"""Schedule of one task class, completed by the decisions that the HLS tool makes itself.

plan = Planner(program, task_class, nest).plan(directives)
tree = planned(nest.body, plan, pids, device)         # loops with trip counts and a mode each
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import Literal, TypeAlias

import numpy as np
from msgspec import field

from allo_dse.common.errors import StaticControlError
from allo_dse.common.records import MOST_SMALL_KEPT, Frozen, once, replace
from allo_dse.compiler.ir.affine import SHIFTS, Compare, Linear, Ranges, extent, replaced
from allo_dse.compiler.ir.nest import (
    BY_POWER,
    WIRING,
    Access,
    Array,
    Branch,
    Loop,
    Nest,
    Node,
    Op,
    loops_of,
    ops_of,
    outermost,
    walk,
)
from allo_dse.compiler.program.compiled import (
    ADDERS,
    DATAFLOW,
    STREAM,
    CompiledProgram,
    Directive,
    TaskClass,
    is_region,
    kept_in_common,
    kernel_of,
    lanes_in,
    lanes_of,
    of_region,
    stream_depth,
)
from allo_dse.compiler.program.tensors import SourceLocation, SourceLoop
from allo_dse.eval.execute.observed_control import Observed

from ..footprint import contested
from .memory import Split, Storage, Unrolled, addresses_of
from .simplify import product_by, rebuilt

# Errors for data-dependent control: the place, the expression, and a remedy.


REMEDY = (
    "use bounds and conditions of loop variables, process ids and constants, joined by and, or, not; "
    "or give the study inputs= on which it is timed"
)
"""Remedy for control that depends on data."""


def refusal(reason: str, location: SourceLocation | None, hint: str = REMEDY) -> StaticControlError:
    """Return an error that names the line and the expression there."""
    if location is None:
        return StaticControlError(f"no static times: {reason}", hint=hint)
    text = linecache.getline(location.file, location.line).strip()
    quoted = f"`{text}`: " if text else ""
    return StaticControlError(f"{location}: {quoted}{reason}", hint=hint)


def place_of(task_class: TaskClass, loop: int | None = None, op: int | None = None) -> SourceLocation | None:
    """Return the source location of a loop or a stream operation by its number, or else of the task class."""
    if loop is not None and 0 <= loop < len(task_class.loops):
        return task_class.loops[loop].location
    if op is not None and 0 <= op < len(task_class.stream_ops):
        return task_class.stream_ops[op].location
    return task_class.location


Mode: TypeAlias = Literal["pipeline", "unroll", "sequential"]
WIDTHS = frozenset({"arith.extsi", "arith.extui", "arith.trunci"})


class Planned(Frozen):
    """A loop with a decided trip count and mode.

    Attributes:
        trips: how often it runs; at most, where that varies.
        first, step: values of its variable.
        target_ii: the interval that a pipelined loop is asked for.
        bounds: first value and end, where they depend on loops around it. The tool then neither unrolls the loop nor
            flattens it into them.
        site: of what decides on its rounds where that is data (`Nest`); -1 where it is not.
        source: its position among the loops of the source, or None inside operations on tiles.
    """

    variable: int
    name: str
    trips: int
    first: int
    step: int
    mode: Mode
    target_ii: int
    body: tuple[Item, ...]
    bounds: tuple[Linear, Linear] | None = None
    site: int = -1
    source: int | None = None

    @property
    def varies(self) -> bool:
        """True if its trip count varies."""
        return self.bounds is not None or self.site >= 0

    @property
    def values(self) -> range:
        """Values of its variable."""
        return range(self.first, self.first + self.trips * self.step, self.step)

    def at(self, variables: Mapping[int, int]) -> Planned:
        """Return the loop with its trip count for these values of outer loops' variables."""
        if self.bounds is None:
            return self
        first, end = (bound.value(variables) for bound in self.bounds)
        assert first is not None
        assert end is not None
        return replace(self, first=int(first), trips=max(0, -(-int(end - first) // self.step)))


Item: TypeAlias = Op | Planned | Branch


class LoopPlan(Frozen):
    """Directives of a loop: its interval if it is to be pipelined, and its unroll factor."""

    interval: int | None = None
    unroll: int = 1


class Plan(Frozen):
    """Directives of a task class: loops by position in `TaskClass.loops`, arrays by name.

    Attributes:
        fabric: whether all floating-point sums take the adder without DSPs.
        overlaps: whether the nests of the kernel run at once.
        lanes: elements of operations on tiles that are computed at once.
        fifos: arrays that one nest passes on to another as a stream, and the streams' depths.
    """

    loops: Mapping[int, LoopPlan]
    storages: Mapping[str, Storage]
    sources: Sequence[SourceLoop] = ()
    fabric: bool = False
    overlaps: bool = False
    fifos: Mapping[str, int] = field(default_factory=dict)
    lanes: int = 1

    def key(self, arguments: Sequence[str]) -> Hashable:
        """Return a key that is equal for plans with equal decisions, whatever the names of arguments.

        Args:
            arguments: names of those that the code uses, in its order.
        """
        number: dict[str, int | str] = {name: at for at, name in enumerate(arguments)}
        storages = frozenset(
            (number.get(name, name), replace(one, array=replace(one.array, name="", argument=None)))
            for name, one in self.storages.items()
        )
        flow = self.overlaps, tuple((number.get(name, name), depth) for name, depth in self.fifos.items())
        return frozenset(self.loops.items()), storages, self.fabric, self.lanes, flow


class Planner(Frozen, eq=False, dict=True):
    """Reader of schedules for one task class. Names are resolved once for all schedules."""

    program: CompiledProgram
    task_class: TaskClass
    nest: Nest
    _loops: dict[str, list[int]] = field(default_factory=dict)  # positions, by name
    _arrays: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by scope and name
    # By name and directives.
    _storages: dict[tuple[str, tuple[Directive, ...], int], Storage] = field(default_factory=dict)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments that the code uses, in its order."""
        given = {name for name, array in self.nest.arrays.items() if array.argument is not None}
        _, _, code = self.task_class.body.mlir.partition(") {\n")
        return tuple(name for name in dict.fromkeys(re.findall(r"%(\w+)", code)) if name in given)

    @cached_property
    def code(self) -> Hashable:
        """Key that is equal for classes that differ only in the arguments that they use."""
        number = {name: f"%argument{at}." for at, name in enumerate(self.arguments)}
        head, _, code = self.task_class.body.mlir.partition(") {\n")
        loops = tuple((loop.name, loop.function, loop.call) for loop in self.task_class.loops)
        return head.count("%"), re.sub(r"%(\w+)", lambda one: number.get(one[1], one[0]), code), loops

    def plan(self, directives: Iterable[Directive] = ()) -> Plan:
        """The directives of the program, and further ones; later ones override."""
        loops: dict[int, LoopPlan] = {}
        said: dict[str, list[Directive]] = {}
        fabric = overlaps = False
        fifos: dict[str, int] = {}
        every = of_region(self.program, (*self.program.schedule, *directives))
        for directive in every:
            scope = directive.scope
            if not is_region(scope, self.program) and kernel_of(scope, self.program) != self.task_class.kernel:
                continue
            if directive.kind == ADDERS:
                fabric = directive.options["impl"] == "fabric"
            elif directive.kind == DATAFLOW:
                overlaps |= directive.name == self.task_class.kernel
            elif directive.kind == STREAM:
                fifos.update(dict.fromkeys(self._named(directive), stream_depth(directive)))
            elif directive.kind in ("pipeline", "unroll"):
                called = partial(self.task_class.called, directive.name)
                for number in once(self._loops, directive.name, called):
                    loops[number] = _loop_plan(loops.get(number, LoopPlan()), directive)
            else:
                for name in self._named(directive):
                    said.setdefault(name, []).append(directive)
        lanes = lanes_in(every)
        used = (name for name, array in self.nest.arrays.items() if array.argument is None or name in self.arguments)
        storages = {name: self._storage(name, tuple(said.get(name, ())), lanes) for name in used}
        common, direct = kept_in_common(self.program, every), contested(self.program)
        names = {storage.array.argument: name for name, storage in storages.items()}
        for port in self.task_class.tensor_ports:
            name, tensor = names.get(port.arg, ""), port.tensor
            if name and tensor.name in common:
                storages[name] = replace(storages[name], users=common[tensor.name].users)
            if name and tensor.name in direct and storages[name].place != "onchip":
                storages[name] = replace(storages[name], strides=tensor.strides)
        return Plan(loops, storages, self.task_class.loops, fabric, overlaps, fifos, lanes)

    def _storage(self, name: str, said: tuple[Directive, ...], lanes: int) -> Storage:
        """Return an array as its directives shape it: one object per outcome, so that caches on it are shared."""
        array = self.nest.arrays[name]
        banks = [1] * len(array.shape[:-1]) + [lanes_of(lanes, extent) for extent in array.shape[-1:]]
        whole = Storage(array, tuple(Split("cyclic", n) if n > 1 else None for n in banks))
        return once(self._storages, (name, said, lanes), lambda: reduce(_stored, said, whole), MOST_SMALL_KEPT)

    def _named(self, directive: Directive) -> list[str]:
        """The arrays a directive names."""
        key = directive.scope, directive.name
        return once(self._arrays, key, lambda: list(self._arrays_of(*key)))

    def _arrays_of(self, scope: str, wanted: str) -> Iterator[str]:
        """Yield the arrays of a name: a region's tensors by their own name, in a kernel by that of its argument."""
        whole = is_region(scope, self.program)
        tensors = {port.arg: port.tensor.name for port in self.task_class.tensor_ports}
        for name, array in self.nest.arrays.items():
            known = {name} if array.argument is None or not whole else set()
            if array.argument is not None and (whole or self.task_class.kernel == self.program.name):
                known.add(tensors.get(array.argument, ""))
            if wanted in known:
                yield name


def _loop_plan(plan: LoopPlan, directive: Directive) -> LoopPlan:
    if directive.kind == "pipeline":
        return replace(plan, interval=int(directive.options.get("initiation_interval", 1)))
    return replace(plan, unroll=int(directive.options.get("factor", 0)))


def _stored(storage: Storage, directive: Directive) -> Storage:
    if directive.kind == "place":
        memory = str(directive.options["memory"])
        # A tile of a tensor in DRAM, or a copy of all of it, is in any memory.
        return replace(storage, place="auto" if memory in ("dram", "copied", "stream") else memory)
    if directive.kind != "partition":
        return storage
    kind, shape = directive.options.get("partition_type", "complete"), storage.array.shape
    splits = list(storage.splits)
    for axis, banks in directive.banks(shape).items():
        splits[axis] = Split(kind if kind != "complete" else "cyclic", min(banks, shape[axis]))
    return replace(storage, splits=tuple(splits))


def planned(
    body: Sequence[Node],
    plan: Plan,
    pids: Mapping[int, int],
    pipeline_loops: int,
    pipelined: Collection[int] = (),
    observed: Observed | None = None,
) -> tuple[Item, ...]:
    """The tree with trip counts and modes.

    Args:
        pids: values of the process id's variables.
        pipelined: variables of the loops that are known to be pipelined, if any are; what directives say of the others
            then does not count.
        pipeline_loops: threshold of pipelining without directives (see `HlsRules`).
        observed: what control that depends on data did in a run.

    Raises:
        StaticControlError: for a trip count that is not known before the program runs.
    """
    resolver = _Resolver(plan, pipelined, observed)
    ranges = {variable: (value, value) for variable, value in pids.items()}
    items = _decided(tuple(resolver.item(node, ranges) for node in body), pipeline_loops)
    tables = {name: storage.array for name, storage in plan.storages.items() if storage.array.values}
    return tuple(_folded(items, tables, {}))


def sources_in(body: Iterable[Node]) -> Iterator[int]:
    """Return the positions of the source loops in some nodes."""
    return (loop.source for loop in loops_of(body) if loop.source is not None)


class _Resolver(Frozen):
    """Resolver of trip counts and modes; a loop without directives is "sequential"."""

    plan: Plan
    pipelined: Collection[int]
    observed: Observed | None = None

    def item(self, node: Node, ranges: Ranges) -> Item:
        return (
            self._loop(node, ranges)
            if isinstance(node, Loop)
            else rebuilt(node, lambda inner: self.item(inner, ranges))
        )

    def _loop(self, node: Loop, ranges: Ranges) -> Item:
        source = None if node.source is None else self.plan.sources[node.source]
        name = "" if source is None else source.name
        known = node.lower is not None and node.upper is not None and node.step > 0
        if not known or not all(form.variables <= ranges.keys() for form in (node.lower, node.upper) if form):
            if self.observed is not None:
                return self._observed(node, name, self.observed, ranges)
            raise refusal(
                "the number of rounds of this loop depends on data",
                None if source is None else source.location,
            )
        assert node.lower is not None
        assert node.upper is not None
        (first, _), (_, end) = extent(node.lower, ranges), extent(node.upper, ranges)
        _, length = extent(node.upper + node.lower.scaled(-1), ranges)
        trips = max(0, -(-length // node.step))
        values = (first, max(first, end - 1))
        body = tuple(self.item(inner, {**ranges, node.variable: values}) for inner in node.body)
        fixed = {v: low for v, (low, high) in ranges.items() if low == high}
        varies = node.lower.value(fixed) is None or node.upper.value(fixed) is None
        loop = self._planned(node, name, trips, first, node.step, body)
        if varies:
            return replace(loop, bounds=(node.lower, node.upper))
        return loop if any(map(_has_varying, body)) else _unrolled(loop, self._said(node).unroll)

    def _said(self, node: Loop) -> LoopPlan:
        if node.source is None and not any(loops_of(node.body)) and node.upper is not None:
            return LoopPlan(unroll=lanes_of(self.plan.lanes, node.upper.constant))
        return self.plan.loops.get(node.source if node.source is not None else -1, LoopPlan())

    def _planned(self, node: Loop, name: str, trips: int, first: int, step: int, body: tuple[Item, ...]) -> Planned:
        interval = self._said(node).interval
        is_pipelined = node.variable in self.pipelined if self.pipelined else interval is not None
        mode: Mode = "pipeline" if is_pipelined else "sequential"
        return Planned(node.variable, name, trips, first, step, mode, interval or 1, body, source=node.source)

    def _observed(self, node: Loop, name: str, observed: Observed, ranges: Ranges) -> Planned:
        """Return a loop with the trip counts of a run."""
        rounds = observed.rounds(node.site, node.step)
        lowest = int(rounds[:, 0].min(initial=0))
        end = int((rounds[:, 0] + rounds[:, 1] * max(1, node.step)).max(initial=lowest + 1))
        body = tuple(self.item(inner, {**ranges, node.variable: (lowest, end - 1)}) for inner in node.body)
        most = int(rounds[:, 1].max(initial=0))
        return replace(self._planned(node, name, most, lowest, max(1, node.step), body), site=node.site)


def _unrolled(loop: Planned, factor: int) -> Planned:
    if factor == 1 or loop.trips == 0:
        return loop
    factor = min(factor or loop.trips, loop.trips)
    if factor == loop.trips and loop.mode != "pipeline":
        return replace(loop, mode="unroll")
    inner_variable = -1 - loop.variable  # value numbers are not negative
    # The outer variable counts rounds, so that forms show the values it has.
    form = Linear(((inner_variable, loop.step), (loop.variable, loop.step * factor)), loop.first)
    body: tuple[Item, ...] = tuple(substituted(item, loop.variable, form) for item in loop.body)
    if loop.trips % factor:  # the last round has fewer copies
        left = Compare("slt", Linear(((inner_variable, 1), (loop.variable, factor)), -loop.trips))
        body = (Branch(inner_variable, left, (body, ()), (), ((), ()), 0),)  # type: ignore[arg-type]
    inner = Planned(inner_variable, "", factor, 0, 1, "unroll", 1, body)
    return replace(loop, trips=math.ceil(loop.trips / factor), first=0, step=1, body=(inner,))


def substituted(item: Item, variable: int, form: Linear) -> Item:
    """The same with a variable replaced by a linear form."""
    item = rebuilt(item, lambda inner: substituted(inner, variable, form))
    if isinstance(item, Planned):
        return replace(item, bounds=item.bounds and tuple(bound.put_in(variable, form) for bound in item.bounds))
    if isinstance(item, Branch):
        return replace(item, test=replaced(item.test, lambda f: f.put_in(variable, form)))
    if item.constant is not None or item.factor is not None:
        known = (one and one.put_in(variable, form) for one in (item.constant, item.factor))
        item = replace(item, **dict(zip(("constant", "factor"), known, strict=True)))
    if item.access is None:
        return item
    index = tuple(None if f is None else f.put_in(variable, form) for f in item.access.index)
    spread = item.access.spread or (form.is_constant and index != item.access.index)
    return replace(item, access=replace(item.access, index=index, spread=spread))


def _decided(items: tuple[Item, ...], pipeline_loops: int) -> tuple[Item, ...]:
    return tuple(_decide(item, pipeline_loops) if isinstance(item, Planned) else item for item in items)


def _decide(loop: Planned, pipeline_loops: int) -> Planned:
    if loop.mode == "unroll":
        return loop
    inner = [one for one in outermost(loop.body) if one.mode != "unroll"]
    fixed = not any(map(_has_varying, loop.body))
    may = loop.mode == "pipeline" or pipeline_loops or not loop.name
    if may and (not inner or (loop.mode == "pipeline" and fixed) or _absorbs(loop, inner, pipeline_loops)):
        return replace(loop, mode="pipeline", body=tuple(_all_unrolled(item) for item in loop.body))
    return replace(loop, mode="sequential", body=_decided(loop.body, pipeline_loops))


def _absorbs(loop: Planned, inner: Sequence[Planned], pipeline_loops: int) -> bool:
    """Return whether the tool unrolls all loops inside this one and pipelines it, without a directive.

    It flattens perfect nests instead. Loops under conditions stay as they are.
    """
    sizes = [_rounds_inside(one) for one in inner]
    if (
        not loop.name
        or any(one not in loop.body for one in inner)
        or any(size is None or size > pipeline_loops for size in sizes)
    ):
        return False
    return len(inner) > 1 or not _is_perfect(loop, inner[0])


def _rounds_inside(loop: Planned) -> int | None:
    """Rounds of a nest of the source without directives; None if one of its loops has any, or if they vary."""
    inner = [_rounds_inside(one) for one in outermost(loop.body) if one.mode != "unroll"]
    if loop.mode != "sequential" or loop.varies or not loop.name or None in inner:
        return None
    return loop.trips * max((rounds for rounds in inner if rounds is not None), default=1)


def _is_perfect(outer: Planned, inner: Planned) -> bool:
    """Return whether a loop is nothing but the loop inside it, also after values that this does not change have left.

    A load whose index depends on the outer loop alone is done before the inner one, and an element that the inner loop
    updates stays in a register.
    """
    if len(outer.body) > 1:
        return False
    inside = {loop.variable for loop in walk((inner,)) if isinstance(loop, Planned)}
    uses: dict[str, list[Access]] = {}
    for op in ops_of((inner,)):
        if op.access is not None:
            uses.setdefault(op.access.array, []).append(op.access)
    for found in uses.values():
        still = [all(f is not None and not f.variables & inside for f in access.index) for access in found]
        stored = any(access.write for access in found)
        about = [any(f and outer.variable in f.variables for f in access.index) for access in found]
        if not stored and any(s and a for s, a in zip(still, about, strict=True)):
            return False
        if stored and all(still) and found[0].index and len({access.index for access in found}) == 1:
            return False
    return True


def _has_varying(item: Item) -> bool:
    """Return whether an item contains loops with a varying trip count, which the tool cannot unroll."""
    return any(isinstance(inner, Planned) and inner.varies for inner in walk((item,)))


def _folded(items: Iterable[Item], tables: Mapping[str, Array], unrolled: Unrolled) -> Iterator[Item]:
    """Yield items in which constants of copies of unrolled loops cost nothing, and products with them no multiplier."""
    loads: dict[int, Access] = {}
    for item in items:
        if isinstance(item, Planned):
            inside = {**unrolled, item.variable: item.values} if item.mode == "unroll" else unrolled
            yield replace(item, body=tuple(_folded(item.body, tables, inside)))
        elif isinstance(item, Branch):
            sides = tuple(tuple(_folded(side, tables, unrolled)) for side in item.sides)  # type: ignore[arg-type]
            yield replace(item, sides=sides)
        else:
            if item.access is not None and item.access.array in tables:
                loads.update(dict.fromkeys(item.outputs, item.access))
            elif item.name in WIDTHS and item.inputs[0] in loads:
                loads[item.outputs[0]] = loads[item.inputs[0]]
            if item.name == "arith.muli":  # factors from tables are as wide as these
                pairs = zip(item.inputs, item.operand_bits, strict=True)
                bits = tuple(min(n, tables[loads[v].array].bits) if v in loads else n for v, n in pairs)
                item = replace(item, operand_bits=bits)
            if item.constant is not None and item.constant.variables <= unrolled.keys():
                item = replace(item, name=WIRING)
            elif item.name in BY_POWER and (found := _constants(item, loads, tables, unrolled)):
                if item.name == "arith.muli":
                    item = replace(item, name=product_by(found))
                elif item.name in SHIFTS or all(number > 0 and number & (number - 1) == 0 for number in found):
                    item = replace(item, name=BY_POWER[item.name])
            yield item


def _constants(op: Op, loads: Mapping[int, Access], tables: Mapping[str, Array], unrolled: Unrolled) -> set[int]:
    """Return the constant factors or divisors that the copies of an operation have; empty if they are not known."""
    if op.factor is not None and op.factor.variables <= unrolled.keys():
        return set(addresses_of([op.factor], unrolled).ravel().tolist())
    inputs = op.inputs if op.name == "arith.muli" else op.inputs[1:]
    for access in (loads[value] for value in inputs if value in loads):
        forms = [form for form in access.index if form is not None and form.variables <= unrolled.keys()]
        if len(forms) == len(access.index):
            table = tables[access.array]
            values = np.array(table.values).reshape(table.shape)
            return {int(values[tuple(place)]) for place in addresses_of(forms, unrolled).tolist()}
    return set()


def _all_unrolled(item: Item) -> Item:
    """Return an item with all loops unrolled, those under conditions included."""
    item = rebuilt(item, _all_unrolled)
    return replace(item, mode="unroll") if isinstance(item, Planned) else item
