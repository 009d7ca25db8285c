"""Dataflow inside a task: the nests of a function run at once, connected by buffers or by FIFOs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from allo_dse.ir.nest import Access, Op
from allo_dse.program.source import SourceLoop

from .memory import Storage
from .plan import Item, Planned


@dataclass(frozen=True)
class Process:
    """What runs as a whole: a nest of the function, or all nests of a function that it calls.

    Attributes:
        first: cycles until what it makes first is there: those of a round of its outermost loop.
        reads, writes: names of arrays.
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


def process_of(items: Sequence[Item], cycles: int) -> Process:
    """What a process takes and works on."""
    rounds = max((item.trips for item in items if isinstance(item, Planned)), default=1)
    used = list(_accesses(items))
    return Process(
        cycles,
        math.ceil(cycles / max(1, rounds)),
        frozenset(access.array for access in used if not access.write),
        frozenset(access.array for access in used if access.write),
    )


def overlapped(chain: Sequence[Process], fifos: Collection[str]) -> int:
    """Cycles of processes that run at once, in program order: the longest way through buffers and FIFOs.

    A buffer is handed on as a whole, when the process that fills it has ended. Through a FIFO a process gets what the
    one before has made so far: it starts a round later, and ends a round after that at the earliest.
    """
    starts: list[int] = []
    ends: list[int] = []
    for process in chain:
        start = end = 0
        for before, began, done in zip(chain, starts, ends, strict=False):
            shared = before.writes & (process.reads | process.writes)
            if not shared:
                continue
            if shared <= set(fifos):
                start, end = max(start, began + before.first), max(end, done + process.first)
            else:
                start = max(start, done)
        starts.append(start)
        ends.append(max(start + process.cycles, end))
    return max(ends, default=0)


def handed_on(
    chain: Sequence[Process], storages: Mapping[str, Storage], fifos: Mapping[str, int]
) -> dict[str, Storage]:
    """The task's own arrays that one process fills and another reads: double buffers, or FIFOs."""
    found = {}
    for number, process in enumerate(chain):
        later = {name for other in chain[number + 1 :] for name in other.reads}
        for name in process.writes & later:
            if storages[name].array.argument is None:
                found[name] = replace(storages[name], buffers=2, fifo_depth=fifos.get(name, 0))
    return found


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


def _accesses(items: Iterable[Item]) -> Iterator[Access]:
    for item in items:
        if isinstance(item, Op):
            if item.access is not None:
                yield item.access
        elif isinstance(item, Planned):
            yield from _accesses(item.body)
        else:
            for side in item.sides:
                yield from _accesses(side)  # type: ignore[arg-type]
