"""For the replay tests: the semantics in plain Python, and random traces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from allo_dse.common.records import replace
from allo_dse.simulator.replay.replay import Depths
from allo_dse.simulator.replay.replay_result import ReplayResult
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put

from ...support.strategies import lists_of, of, shuffled


def reference(
    processes: dict[str, list[Loop]], depths: dict[str, int]
) -> tuple[dict[str, int | None], bool, dict[str, list[int]]]:
    """docs/timing.md word by word: per process its end (None: it sticks), whether all ended, put times per stream."""
    todo: dict[str, list[Any]] = {}
    end: dict[str, int] = {}
    for name, loops in processes.items():
        base = done = 0
        todo[name] = []
        for loop in loops:
            if loop.events is None:
                ops = [(type(op).__name__.lower(), op.stream, k, op.stage) for k in range(loop.trip) for op in loop.ops]
            else:
                ops = [(*event, None) for event in loop.events]
            due: list[tuple[int, str, str]] = []
            last = max(loop.depth - 1, 0)
            stages = [
                (min(2, last) if kind == "get" else last) if stage is None else stage for kind, _, _, stage in ops
            ]
            for (kind, stream, k, _), stage in zip(ops, stages, strict=True):
                due.append((base + k * loop.ii + stage, kind, stream))
            todo[name] += sorted(due, key=lambda op: op[0])  # stable: program order where due at the same time
            if loop.trip:
                done = base + (loop.trip - 1) * loop.ii + max([last, *stages])
                base += (loop.trip - 1) * loop.ii + loop.depth + 1
        end[name] = done
    put: dict[str, list[int]] = {stream: [] for stream in depths}
    got: dict[str, list[int]] = {stream: [] for stream in depths}
    stall = dict.fromkeys(processes, 0)
    moved = True
    while moved:
        moved = False
        for name, waiting in todo.items():
            while waiting:
                when, kind, stream = waiting[0]
                t = when + stall[name]
                if kind == "get":
                    if len(got[stream]) == len(put[stream]):
                        break
                    t = max(t, put[stream][len(got[stream])] + (1 if depths[stream] <= 2 else 2))
                    got[stream].append(t)
                else:
                    n = len(put[stream])
                    if n - len(got[stream]) == depths[stream]:
                        break
                    if n >= depths[stream]:
                        t = max(t, got[stream][n - depths[stream]] + 1)
                    put[stream].append(t)
                stall[name] = t - when
                waiting.pop(0)
                moved = True
    ends = {name: end[name] + stall[name] if not todo[name] else None for name in processes}
    return ends, not any(todo.values()), put


TOKENS = st.lists(st.sampled_from([6, 60, 600]), min_size=1, max_size=2)
FEW_OR_MANY = st.integers(1, 9) | st.integers(1, 2000)


@cache
def _stages(depth: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, depth)


@cache
def _trips(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, most), min_size=1, max_size=2)


def _wiring(draw: Any, streams: list[str], processes: list[str]) -> dict[str, tuple[str, str]]:
    return {s: (draw(of(*processes)), draw(of(*processes))) for s in streams}


@st.composite
def irregular(draw: Any) -> tuple[dict[str, list[Loop]], dict[str, int]]:
    """Any operations in any order; most of these stick somewhere, some have unequal numbers of puts and gets."""
    processes = [f"p{i}" for i in range(draw(st.integers(1, 4)))]
    streams = [f"s{i}" for i in range(draw(st.integers(1, 4)))]
    wiring = _wiring(draw, streams, processes)
    made: dict[str, list[Loop]] = {}
    for p in processes:
        ports = [("put", s) for s in streams if wiring[s][0] == p] + [("get", s) for s in streams if wiring[s][1] == p]
        made[p] = []
        for _ in range(draw(st.integers(0, 2))):
            ops = draw(lists_of(*ports, most=12)) if ports else []
            trip = draw(st.integers(1, 4))
            iterations = sorted(draw(st.lists(st.integers(0, trip - 1), min_size=len(ops), max_size=len(ops))))
            events = [(*op, k) for op, k in zip(ops, iterations, strict=True)]
            made[p].append(Loop(trip, draw(st.integers(1, 4)), draw(st.integers(0, 7)), events=events))
    return made, {s: draw(st.integers(1, 4)) for s in streams}


@st.composite
def regular(draw: Any, most: int = 12) -> tuple[dict[str, list[Loop]], dict[str, int]]:
    """Processes that do the same every iteration; tokens flow forward mostly, so that most of these end."""
    processes = [f"p{i}" for i in range(draw(st.integers(1, 5)))]
    streams = [f"s{i}" for i in range(draw(st.integers(1, 6)))]
    wiring = _wiring(draw, streams, processes)
    if draw(st.booleans()):
        wiring = {s: (min(ends), max(ends)) for s, ends in wiring.items()}
    trips = draw(_trips(most))
    made: dict[str, list[Loop]] = {}
    for p in processes:
        made[p] = []
        for trip in trips:
            ops: list[Get | Put] = [Get(s) for s in streams if wiring[s][1] == p]
            ops += [Put(s) for s in streams if wiring[s][0] == p]
            ops = shuffled(draw, ops) if draw(st.integers(0, 3)) == 0 else ops
            if draw(st.integers(0, 7)) == 0:
                ops = [*ops, *ops]
            ii, depth = draw(st.integers(1, 5)), draw(st.integers(0, 9))
            staged = [type(op)(op.stream, draw(_stages(max(depth, 1)))) for op in ops]
            made[p].append(Loop(trip, ii, depth, ops=staged))
    return made, {s: draw(st.integers(1, 6)) for s in streams}


@st.composite
def multirate(draw: Any) -> tuple[dict[str, list[Loop]], dict[str, int]]:
    """Processes that take several tokens an iteration, or one stream after the other; as many tokens in as out."""
    processes = [f"p{i}" for i in range(draw(st.integers(2, 5)))]
    streams = [f"s{i}" for i in range(draw(st.integers(1, 6)))]
    wiring = {s: tuple(sorted(shuffled(draw, processes)[:2])) for s in streams}
    made: dict[str, list[Loop]] = {p: [] for p in processes}
    for tokens in draw(TOKENS):
        for p in processes:
            ops: list[Get | Put] = [Get(s) for s in streams if wiring[s][1] == p]
            ops += [Put(s) for s in streams if wiring[s][0] == p]
            cut = draw(st.integers(0, len(ops))) if draw(st.integers(0, 3)) == 0 else len(ops)
            for part in (ops[:cut], ops[cut:]):
                rate = draw(of(1, 1, 2, 3))
                made[p].append(Loop(tokens // rate, draw(st.integers(1, 5)), draw(st.integers(0, 9)), ops=part * rate))
    return made, {s: draw(FEW_OR_MANY) for s in streams}


REGULAR_OR_MULTIRATE = st.one_of(regular(), multirate())


@st.composite
def banked(draw: Any) -> tuple[dict[str, list[Loop]], dict[str, int]]:
    """Streams that are arrays of streams, used one after the other at once; not all are equally deep."""
    made, depths = draw(REGULAR_OR_MULTIRATE)
    banks = {s: draw(st.integers(1, 5)) for s in depths}
    names = {s: [f"{s}_{b}" for b in range(banks[s])] for s in depths}
    if draw(st.booleans()):  # in the order of the program, or in any
        names = {s: shuffled(draw, banked) for s, banked in names.items()}

    def unrolled(ops: Sequence[Get | Put]) -> list[Get | Put]:
        return [type(op)(bank, op.stage) for op in ops for bank in names[op.stream]]

    processes = {p: [replace(loop, ops=unrolled(loop.ops)) for loop in loops] for p, loops in made.items()}
    equal = draw(st.booleans())
    return processes, {b: depths[s] if equal else depths[s] + draw(st.integers(0, 1)) for s in depths for b in names[s]}


def networks() -> st.SearchStrategy[tuple[dict[str, list[Loop]], dict[str, int]]]:
    return st.one_of(irregular(), regular(), multirate(), banked())


def trace_of(network: tuple[dict[str, list[Loop]], dict[str, int]], **options: Any) -> Trace:
    processes, depths = network
    return Trace.build(depths, processes, **options)


def systolic(size: int, k: int, depth: int = 2) -> Trace:
    """A size x size systolic array for products with inner length k: loaders, cells, drains."""
    across = [[f"a{i}_{j}" for j in range(size + 1)] for i in range(size)]
    down = [[f"b{i}_{j}" for j in range(size)] for i in range(size + 1)]
    processes: dict[str, list[Loop]] = {}
    for i in range(size):
        processes[f"load_a{i}"] = [Loop(k, 1, 2, [Put(across[i][0])])]
        processes[f"load_b{i}"] = [Loop(k, 1, 2, [Put(down[0][i])])]
        for j in range(size):
            ops: list[Get | Put] = [Get(across[i][j]), Get(down[i][j]), Put(across[i][j + 1]), Put(down[i + 1][j])]
            processes[f"cell{i}_{j}"] = [Loop(k, 1, 2, ops)]
        processes[f"drain_a{i}"] = [Loop(k, 1, 2, [Get(across[i][size])])]
        processes[f"drain_b{i}"] = [Loop(k, 1, 2, [Get(down[size][i])])]
    streams = [name for row in (*across, *down) for name in row]
    return Trace.build(dict.fromkeys(streams, depth), processes, name=f"systolic {size}x{size}, K={k}", clock_ns=1.0)


def replayed(trace: Trace, depths: Depths) -> ReplayResult:
    """Times with one vector of depths."""
    result = trace.replay(depths)
    assert isinstance(result, ReplayResult)
    return result


def makespans(trace: Trace, batch: ArrayLike) -> list[int]:
    """The cycles of several vectors of depths, -1 for those that deadlock."""
    result = trace.replay(batch)
    assert not isinstance(result, ReplayResult)
    found: list[int] = result.tolist()
    return found


def token_times(result: ReplayResult) -> np.ndarray:
    """When each token was put and taken out, -1 for never."""
    return np.stack([result.times.put, result.times.get])
