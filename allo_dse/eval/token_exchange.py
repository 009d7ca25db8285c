"""The token exchange of a folded graph, executed without values and costs: it decides which folds deadlock.

Rule T16 of docs/timing.md: a node executes its tasks one after the other, each in the order of the program, on the
FIFOs of the fold. Whether that ends depends on the order of operations only (T13), so what is found here holds for the
timer and for the run on numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from allo_dse.common.records import Frozen, once
from allo_dse.compiler.program.tensors import IntArray, SourceLocation
from allo_dse.mapper.fold.node_edges import FoldFifos, edge_fifos
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.token_order import ClassOrder, count_tokens, exchange_table
from allo_dse.mapper.graph_algorithms import DisjointSets
from allo_dse.mapper.violation import Violation
from allo_dse.simulator.codegen.static_steps import Repeat, Steps
from allo_dse.simulator.deadlock import Blocked
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder

MOST_NAMED = 4
"""Waiting tasks that a message names."""


class NeededDepths(Frozen):
    """FIFO depths that a graph needs to run.

    Attributes:
        depth: by stream array, if it needs more than is declared.
        blocked: tasks that wait for each other at any depth, in words; empty if the graph runs.
    """

    depth: Mapping[str, int]
    blocked: tuple[str, ...] = ()


def exchange_depths(vmg: VMG, depths: Mapping[str, int] | None = None) -> NeededDepths | None:
    """The smallest depths at which a folded graph runs, or the tasks that wait for each other at any depths.

    None where data decides what tasks exchange, so that only a run can tell.

    Args:
        depths: to begin with, by stream array; the declared ones where it has none.
    """
    part = vmg.slice
    if _never_waits(part):
        return NeededDepths({})
    if any(order.by_place for order in part.graph.token_orders or ()):
        part = vmg
    orders = part.graph.token_orders
    if orders is None:
        return None
    return least_depths(TokenExchange(part, orders, depths or {}), part.graph.table("depths"))


def least_depths(search: DepthSearch, known: dict[bytes, NeededDepths]) -> NeededDepths:
    """Return `smallest_depths`, found once for all graphs that exchange the same tokens."""
    return once(known, search.key, partial(smallest_depths, search))


def _never_waits(vmg: VMG) -> bool:
    """Return whether no FIFO can block another one, whatever its depth.

    This holds if at most one path with one FIFO connects any two nodes, and earlier tasks put the tokens inside nodes.
    """
    edges, node, position = vmg.graph.edges, vmg.node_of_task, vmg.uses.position
    source, target = node[edges.source], node[edges.target]
    inside = source == target
    if (position[edges.source[inside]] >= position[edges.target[inside]]).any():
        return False
    order, fifo = edge_fifos(vmg.graph, position, node, vmg.merges)
    first = order[np.flatnonzero(np.diff(fifo, prepend=-1))]
    first = first[~inside[first]]
    sets = DisjointSets[int]()
    return all(sets.join(a, b) for a, b in zip(source[first].tolist(), target[first].tolist(), strict=True))


def stream_deadlock(needed: NeededDepths | None) -> Iterator[Violation]:
    """Tasks that wait for each other's tokens however deep their FIFOs are."""
    if needed is not None and needed.blocked:
        yield Violation(
            "stream_deadlock", "deadlock at any stream depths", len(needed.blocked), 0, "; ".join(needed.blocked)
        )


class TokenExchange(Frozen, eq=False, dict=True):
    """Runs of a graph's token exchange at different depths.

    Attributes:
        depths: that replace the declared ones, by stream array.
    """

    vmg: VMG
    orders: Sequence[ClassOrder]
    depths: Mapping[str, int] = {}

    @cached_property
    def declared(self) -> Mapping[str, int]:
        """Depth to begin with of every stream array from node to node; arrays are lowered in this order."""
        streams, between = self.vmg.program.streams, set(self._array[self._fifos.held == 0].tolist())
        named = [stream for number, stream in enumerate(streams) if number in between]
        return {stream.name: self.depths.get(stream.name, stream.depth) for stream in named}

    @cached_property
    def most_tokens(self) -> int:
        """Tokens through the busiest FIFO: no FIFO has to hold more."""
        tokens = np.zeros(len(self._fifos.held), np.int64)
        for order in self.orders:
            for kind, counts in enumerate(order.tokens):
                fifos = self._fifos.fifo[order.streams[order.which == kind]]
                for parameter, count in counts.items():
                    np.add.at(tokens, fifos[:, parameter - order.first], count)
        return int(tokens.max(initial=0))

    @property
    def key(self) -> bytes:
        """Equal for folds of a program that execute the same tasks in the same order on the same FIFOs, as deep."""
        digest = hashlib.blake2b(digest_size=16)
        streams = [self._fifos.fifo[order.streams] for order in self.orders]
        for part in (self.vmg.node_of_task, self.vmg.uses.position, self._fifos.held, *streams):
            digest.update(part.tobytes())
        digest.update(repr(sorted(self.declared.items())).encode())
        return digest.digest()

    def run(self, depth: Mapping[str, int]) -> RunResult:
        of_array = np.array([depth.get(stream.name, 1) for stream in self.vmg.program.streams], np.int64)
        held = self._fifos.held
        depths = np.where(held > 0, held, of_array[self._array])
        # The next run uses the memory of the last one.
        found = vars(self)["last"] = table_engine().rerun(self._network[0].at(depths), vars(self).get("last"))
        return found

    def full(self, result: RunResult) -> set[str]:
        """The arrays between nodes whose full FIFOs nodes wait for."""
        waiting = (b.stream for b in _waiting(result) if b.direction == "put")
        return {self._name(stream) for stream in waiting if not self._fifos.held[stream]}

    def blocked(self, result: RunResult) -> tuple[str, ...]:
        """The tasks that wait for each other, with streams and lines."""
        program, found = self.vmg.program, []
        for one in _waiting(result)[:MOST_NAMED]:
            task, name = int(self._network[1][one.task]), self._name(one.stream)
            way = "get from" if one.direction == "get" else "put to"
            place = self._place(task, one.direction, name)
            found.append(f"{program.task_name(task)} waits to {way} {name}{f' ({place})' if place else ''}")
        return tuple(found)

    def _place(self, task: int, direction: str, name: str) -> SourceLocation | None:
        for order in self.orders:
            if task in order.own.tasks:
                for port in order.own.task_class.stream_ports:
                    if (port.direction, port.stream.name) == (direction, name):
                        return port.location
        return None

    def _name(self, fifo: int) -> str:
        return self.vmg.program.streams[int(self._array[fifo])].name

    @cached_property
    def _network(self) -> tuple[Network, IntArray]:
        """At depths of 1; and the program's task of each process."""
        vmg, builder = self.vmg, NetworkBuilder()
        builder.streams(np.ones(len(self._fifos.held), np.int64))
        number, tasks = np.full(vmg.task_count, -1), []
        for order, kinds in zip(self.orders, self._executed, strict=True):
            whole = kinds is order.kinds
            tables = order.tables if whole else [exchange_table(steps, order.first) for steps in kinds]
            number[order.own.tasks] = builder.processes(tables, order.which, self._fifos.fifo[order.streams])
            tasks.append(order.own.tasks)
        for group in vmg.groups:
            numbers = number[group.leaves.tasks()]
            used = numbers >= 0  # tasks without streams never wait
            builder.nodes(numbers[used], used.sum(axis=1))
        return builder.build(), np.concatenate(tasks)

    @property
    def _executed(self) -> Sequence[Sequence[Steps]]:
        """The steps of each order's kinds; of loops around all of them the first round, where that decides the rest.

        It does if every node has one task, and both ends of every FIFO move as many tokens in each of equally many
        rounds. A round that ends then leaves all FIFOs empty, so that the next is like it. If one does not end, tasks
        that are blocked wait only for blocked ones: a task that is done with the round has moved all tokens of it.
        """
        steps: Sequence[Sequence[Steps]] = [order.kinds for order in self.orders]
        nodes = self.vmg.node_of_task[np.concatenate([order.own.tasks for order in self.orders])]
        if len(np.unique(nodes)) < len(nodes):
            return steps
        while (inner := self._round(steps)) is not None:
            steps = inner
        return steps

    def _round(self, steps: Sequence[Sequence[Steps]]) -> Sequence[Sequence[Steps]] | None:
        """Return the steps within the loops that all steps are in; None if there are none, or their rounds differ."""
        rounds, tokens = np.zeros((2, 2, len(self._fifos.held)), np.int64)
        found = []
        for order, kinds in zip(self.orders, steps, strict=True):
            inner = []
            for kind, own in enumerate(kinds):
                moving = [step for step in own if any(count_tokens((step,), {}).values())]
                if len(moving) > 1 or (moving and not isinstance(moving[0], Repeat)):
                    return None
                fifos = self._fifos.fifo[order.streams[order.which == kind]]
                for loop in moving:
                    assert isinstance(loop, Repeat)
                    for is_put in (False, True):
                        for parameter, count in count_tokens(loop.steps, {}, puts=is_put).items():
                            ends = fifos[:, parameter - order.first]
                            np.add.at(tokens[int(is_put)], ends, count)
                            if ((rounds[int(is_put), ends] != 0) & (rounds[int(is_put), ends] != loop.count)).any():
                                return None
                            rounds[int(is_put), ends] = loop.count
                    inner.append(loop.steps)
                if not moving:
                    inner.append(())
            found.append(inner)
        alike = (rounds[0] == rounds[1]).all() and (tokens[0] == tokens[1]).all()
        return found if alike and rounds.any() else None

    @cached_property
    def _array(self) -> IntArray:
        return self.vmg.program.arrays_of(self._fifos.stream)

    @cached_property
    def _fifos(self) -> FoldFifos:
        """The FIFOs that tasks use, numbered without gaps; streams that none uses have any number."""
        fifos = self.vmg.uses.fifos
        kept = np.unique(np.concatenate([fifos.fifo[order.streams].ravel() for order in self.orders]))
        return FoldFifos(np.searchsorted(kept, fifos.fifo), fifos.stream[kept], fifos.held[kept], fifos.used[kept])


def _waiting(result: RunResult) -> Sequence[Blocked]:
    assert result.deadlock is not None
    return result.deadlock.cycle or result.deadlock.blocked


class DepthSearch(Protocol):
    """Runs of a token exchange at depths by stream array.

    Attributes:
        declared: depth of every array; arrays are lowered in this order.
        most_tokens: no FIFO has to hold more.
    """

    @property
    def declared(self) -> Mapping[str, int]: ...

    @property
    def most_tokens(self) -> int: ...

    @property
    def key(self) -> bytes:
        """Equal for graphs that exchange the same tokens through equally deep FIFOs."""

    def run(self, depth: Mapping[str, int]) -> RunResult: ...

    def full(self, result: RunResult) -> set[str]:
        """The arrays whose full FIFOs processes wait for."""

    def blocked(self, result: RunResult) -> tuple[str, ...]:
        """The processes that wait for each other, in words."""


def smallest_depths(search: DepthSearch) -> NeededDepths:
    """The smallest depths at which an exchange ends, none less than declared, found for one array after the other."""
    declared, depth = search.declared, dict(search.declared)
    # Parks 1995: a deadlock that more room could resolve contains a full FIFO, and deeper FIFOs never disable a step.
    # The search ends because no FIFO has to hold more than all tokens of its stream.
    while not (result := search.run(depth)).finished:
        full = search.full(result)
        if not full or max(depth[name] for name in full) > search.most_tokens:
            return NeededDepths({}, search.blocked(result))
        depth |= {name: 2 * depth[name] for name in full}
    for name in [name for name in depth if depth[name] > declared[name]]:
        # A graph that runs at a depth runs at every larger one (Kahn 1974), so bisection finds the least.
        fails, works = declared[name] - 1, depth[name]
        while works - fails > 1:
            middle = (fails + works) // 2
            if search.run({**depth, name: middle}).finished:
                works = middle
            else:
                fails = middle
        depth[name] = works
    return NeededDepths({name: d for name, d in depth.items() if d > declared[name]})
