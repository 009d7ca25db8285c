"""Dataflow inside a task: the nests of a function run at once, connected by buffers or by FIFOs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.ir.linear import Linear
from allo_dse.ir.nest import Access, Op
from allo_dse.program.locations import SourceLoop

from .item_walks import accesses
from .memory import MOST_COPIES, Storage, addresses_of, copies_of
from .plan import Item, Planned


class Process(Struct, frozen=True):
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
    """The items of a function, by the process that they belong to; what stands between nests goes with the next one."""
    found: list[list[Item]] = []
    before: tuple[str, int] | None = None
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        loop = next(_sourced(item), None)
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


def overlapped(chain: Sequence[Process], fifos: Collection[str]) -> int:
    """Cycles of processes that run at once, in program order: the longest way through buffers and FIFOs.

    A buffer is handed on as a whole, when the process that fills it has ended. Through a FIFO a process gets what the
    one before has made so far: it starts a round later, and ends a round after that at the earliest.
    """
    starts: list[int] = []
    ends: list[int] = []
    writers: dict[str, list[int]] = {}
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
        for name in process.writes:
            writers.setdefault(name, []).append(number)
    return max(ends, default=0)


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


def _sourced(item: Item) -> Iterator[int]:
    """The loops of the source in an item, outermost first."""
    if isinstance(item, Planned):
        if item.source is not None:
            yield item.source
        for inner in item.body:
            yield from _sourced(inner)
    elif not isinstance(item, Op):
        for side in item.sides:
            for nested in side:
                yield from _sourced(nested)  # type: ignore[arg-type]
