"""Schedule of the tiles that a node of a fold needs: one period, and its number of repetitions.

A folded node runs a loop nest of tasks. A tensor port needs another tile only when the tile's index changes; a tile
that stays is not moved again. The outer loops repeat the same pattern of moves, so a schedule is one period of leaves
plus a count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from math import gcd, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, TensorPort
from allo_dse.mapper.graph.groups import ArrayLeaves, MeshLeaves, NodeGroup, Repeat, Tree
from allo_dse.mapper.graph.ports import PortKey, port_key, schedule_round
from allo_dse.mapper.graph.program_graph import ProgramGraph

Flags = NDArray[np.bool_]


class Cadence(Frozen):
    """Number of occurrences in the first period, and in every later one."""

    first: int
    steady: int

    def over(self, periods: int) -> int:
        """Return the number of occurrences in the first `periods` periods."""
        return self.first + (periods - 1) * self.steady


class PortSchedule(Frozen, eq=False, dict=True):
    """Times at which one tensor port of a node moves tiles; every array has one entry per leaf of a period.

    Attributes:
        first: in the first period, whether the leaf starts with a new tile ("in") or ends by giving one away ("out").
        steady: the same for every later period.
        last_use: whether the leaf is the last to use its tile, in a period that another one follows.
    """

    key: PortKey
    port: TensorPort
    first: Flags
    steady: Flags
    last_use: Flags

    @cached_property
    def cadence(self) -> Cadence:
        """Number of tiles that the port moves in a period."""
        return Cadence(int(np.count_nonzero(self.first)), int(np.count_nonzero(self.steady)))


class GroupSchedule(Frozen, dict=True):
    """One node group's schedule.

    Attributes:
        periods: how often the period repeats.
        classes: per leaf of a period, the position of its class in `class_list`.
        work_list, work: the same for each node of the group, (count or 1, leaves), where classes are told apart by how
            often they do their work too.
    """

    group: NodeGroup
    periods: int
    class_list: tuple[TaskClass, ...]
    classes: IntArray
    ports: tuple[PortSchedule, ...]
    work_list: tuple[TaskClass, ...]
    work: IntArray

    @cached_property
    def by_key(self) -> dict[PortKey, PortSchedule]:
        """The ports by key."""
        return {port.key: port for port in self.ports}

    def priced(self, cost: Callable[[TaskClass], float]) -> NDArray[np.float64]:
        """The cost of each leaf of a period, for each node of the group or, in one row, for all of them."""
        return np.array([cost(c) for c in self.work_list])[self.work]


Shape = tuple[int, Tree, tuple[int, ...], tuple[int, ...]]


def period_table(graph: ProgramGraph) -> PeriodTable:
    """Return the period table of a program; `graph.once` keeps it for all of its folds."""
    return PeriodTable(graph.program)


class PeriodTable:
    """Schedules of node groups; folds of one program share those with equal `_shape`."""

    def __init__(self, program: CompiledProgram) -> None:
        self._program = program
        self._levels: dict[Shape, int] = {}
        self._schedules: dict[tuple[Shape, int], GroupSchedule] = {}

    def schedules(self, groups: Sequence[NodeGroup]) -> tuple[GroupSchedule, ...]:
        """The schedules of the nodes of one fold, group after group; all of them have the same number of periods."""
        groups = [part for group in groups for part in group.once(_alike)]
        # Several steady periods in a row are one longer period, so a common divisor of the groups' counts suits all.
        periods = gcd(*(group.once(self._most_periods) for group in groups))
        return tuple(group.once(self._schedule, periods) for group in groups)

    def _most_periods(self, group: NodeGroup) -> int:
        """Return the number of repetitions of a group's pattern of moves."""
        shape = group.once(self._shape)
        loops = tuple(group.leaves.loops or (group.tree.leaf_count,))  # one of all leaves where they are not a nest
        if shape is None:
            return prod(loops[: _steady_levels(self._program, group, loops)])
        if shape not in self._levels:
            self._levels[shape] = _steady_levels(self._program, group, loops)
        return prod(loops[: self._levels[shape]])

    def _schedule(self, group: NodeGroup, periods: int) -> GroupSchedule:
        shape = group.once(self._shape)
        if shape is None:
            return _group_schedule(self._program, group, periods)
        if (shape, periods) not in self._schedules:
            self._schedules[shape, periods] = _group_schedule(self._program, group, periods)
        found = self._schedules[shape, periods]
        return found if found.group is group else replace(found, group=group)

    def _shape(self, group: NodeGroup) -> Shape | None:
        """Return all that decides when the tiles of a mesh fold's nodes change; None if more decides.

        Each temporal loop runs along an axis of its own. If every tile coordinate depends on at most one axis, the
        advance of a loop either changes the tile or does not, regardless of the node and of how far it advances.
        """
        leaves = group.leaves
        if isinstance(leaves, MeshLeaves) and leaves.kernel in self._axis_by_axis:
            return leaves.kernel, group.tree, leaves.loops, leaves.loop_axes
        return None

    @cached_property
    def _axis_by_axis(self) -> frozenset[int]:
        """The kernels each of whose tile coordinates depends on one axis at most; none where work varies."""
        if _varies(self._program):
            return frozenset()
        kernels = enumerate(self._program.kernels)
        return frozenset(
            n
            for n, kernel in kernels
            if all(
                port.tile.is_affine and all(np.count_nonzero(row) <= 1 for row in port.tile.matrix)
                for cls in kernel.classes
                for port in cls.tensor_ports
            )
        )


def _alike(group: NodeGroup) -> tuple[NodeGroup, ...]:
    """The parts of a group whose nodes have the same schedule.

    In a graph folded node by node, nodes that execute the same tree need other tiles and exchange tokens with other
    nodes at different times.
    """
    if not isinstance(group.leaves, ArrayLeaves) or group.count == 1:
        return (group,)
    return tuple(NodeGroup(group.tree, 1, ArrayLeaves(tasks[None])) for tasks in group.leaves.array)


def _steady_levels(program: CompiledProgram, group: NodeGroup, trips: tuple[int, ...]) -> int:
    """Return the number of outer loops that repeat the same pattern of moves, whichever of them advances.

    Only repetitions in the tree count: the tasks of a chain differ from each other.
    """
    body = group.tree.child.leaf_count if isinstance(group.tree, Repeat) else group.tree.leaf_count
    # Every repetition uses the same ports, so the last use before its begin and the first one after it are within one
    # repetition each. If all its tasks are of one class, they are next to the begin.
    span = 1 if len(schedule_round(group.tree).classes) == 1 else body
    known: dict[int, Moves] = {}
    for levels in range(_levels_of_equal_work(program, group, len(trips)), 0, -1):
        period = prod(trips[levels:])
        if period % body:
            continue
        starts = [prod(trips[level + 1 :]) for level in range(levels) if trips[level] > 1]
        for start in starts:
            if start not in known:
                known[start] = _start_pattern(program, group, start, span)
        if all(known[start] == known[starts[0]] for start in starts):
            return levels
    return 0


def _varies(program: CompiledProgram) -> bool:
    """Return whether some class has tasks with different work."""
    return any(kernel.by_work[0] is not kernel.classes for kernel in program.kernels)


def _levels_of_equal_work(program: CompiledProgram, group: NodeGroup, levels: int) -> int:
    """Return the number of outer loops with tasks of equal work in each iteration."""
    if not _varies(program):
        return levels
    if not isinstance(group.leaves, MeshLeaves):
        return 0
    varying = program.kernels[group.leaves.kernel].by_work[1].shape
    same = (varying[axis] == 1 for axis in group.leaves.loop_axes)
    return sum(1 for _ in takewhile(bool, same))


Moves: TypeAlias = tuple[tuple[PortKey, bool], ...]
"""For each port whether it needs another tile."""


def _start_pattern(program: CompiledProgram, group: NodeGroup, start: int, span: int) -> Moves:
    """For each port, whether its first use from leaf `start` on needs another tile than its last one before, among so
    many leaves on either side."""
    tasks = group.leaves.tasks(start - span, start + span)[0]
    tiles = _port_tiles(program, tasks)
    return tuple((key, _changes(tiles[key][1], span)) for key in sorted(tiles, key=repr))


def _changes(tiles: IntArray, at: int) -> bool:
    """Return whether the first tile used at or after position `at` differs from the last one used before it."""
    before, after = tiles[:at], tiles[at:]
    before, after = before[before >= 0], after[after >= 0]
    return len(after) > 0 and (len(before) == 0 or before[-1] != after[0])


def _group_schedule(program: CompiledProgram, group: NodeGroup, periods: int) -> GroupSchedule:
    period = group.tree.leaf_count // periods
    tasks = group.leaves.tasks(0, min(2, periods) * period)[0]
    class_list, classes = _classes(program, tasks)
    work_list, work = class_list, classes[None, :period]
    if _varies(program):
        own = group.leaves.tasks(0, period)
        work_list, work = _classes(program, own.reshape(-1), by_work=True)
        work = work.reshape(own.shape)
    tiles = _port_tiles(program, tasks)
    ports = tuple(_port_schedule(key, port, own, period) for key, (port, own) in tiles.items())
    return GroupSchedule(group, periods, class_list, classes[:period], ports, work_list, work)


def _port_schedule(key: PortKey, port: TensorPort, tiles: IntArray, period: int) -> PortSchedule:
    """Moves of one port from the tiles that two periods of leaves use (-1 where a leaf does not use the port)."""
    used = np.flatnonzero(tiles >= 0)
    changes = np.diff(tiles[used]) != 0
    fresh, done = np.zeros((2, len(tiles)), bool)
    fresh[used] = np.concatenate(([True], changes))
    done[used] = np.concatenate((changes, [True]))
    moves = fresh if key[1] == "in" else done
    steady = moves[period:] if len(tiles) > period else moves
    return PortSchedule(key, port, moves[:period], steady, done[:period])


def _port_tiles(program: CompiledProgram, tasks: IntArray) -> dict[PortKey, tuple[TensorPort, IntArray]]:
    """For each port the tile that every task uses, -1 where it uses none."""
    result: dict[PortKey, tuple[TensorPort, IntArray]] = {}
    kernels = np.searchsorted(program.first_task, tasks, side="right") - 1
    for k in sorted(set(kernels.tolist())):  # often a handful, for which `np.unique` takes longer
        kernel = program.kernels[k]
        rows = np.flatnonzero(kernels == k)
        pids = program.pids(k, tasks[rows])
        classes = kernel.class_of(pids)
        for c in sorted(set(classes.tolist())):
            here = classes == c
            for port in kernel.classes[c].tensor_ports:
                for direction in port.directions:
                    _, tiles = result.setdefault(port_key(port, direction), (port, np.full(len(tasks), -1, np.int64)))
                    tiles[rows[here]] = port.tile.linear(pids[here])
    return result


def _classes(
    program: CompiledProgram, tasks: IntArray, *, by_work: bool = False
) -> tuple[tuple[TaskClass, ...], IntArray]:
    """The classes that occur, by work too if they shall be told apart by it, and for each task the position of its
    class among them."""
    kernels = np.searchsorted(program.first_task, tasks, side="right") - 1
    codes = np.zeros(len(tasks), np.int64)
    offset = 0
    every: list[TaskClass] = []
    for k, kernel in enumerate(program.kernels):
        rows = np.flatnonzero(kernels == k)
        own = kernel.by_work[0] if by_work else kernel.classes
        if len(rows):
            pids = program.pids(k, tasks[rows])
            codes[rows] = offset + (kernel.work_of(pids) if by_work else kernel.class_of(pids))
        every.extend(own)
        offset += len(own)
    present, classes = np.unique(codes, return_inverse=True)
    return tuple(every[c] for c in present), classes.astype(np.int64)
