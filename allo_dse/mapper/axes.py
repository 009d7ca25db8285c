"""Legal folds of each mesh axis of a kernel, derived from stream index maps and task classes.

The cost depends on the number of classes and ports only: two million tasks are analysed as fast as two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from allo_dse.common.records import Frozen, Ints, replace
from allo_dse.compiler.program.compiled import CompiledProgram, Kernel, TaskClass
from allo_dse.compiler.program.tensors import BoolArray, IndexMap, StreamArray, StreamPort

from .graph_algorithms import DisjointSets

# Linked axes: axes of different kernels that exchange tokens place by place and can be folded together.


How = Literal["bundle", "chain"]


class AxisRule(Frozen):
    """The legal folds of one mesh axis.

    Attributes:
        extent: tasks along the axis.
        how: the fold that is legal along it, or None if it must stay spatial.
        direction: the order in which a chain executes its tasks: -1 if streams run towards smaller indices, else +1.
        streams: whether streams connect tasks at different places of the axis.
        partial: whether a chain may be cut into several nodes.
        reason: why the axis must stay spatial; empty if it need not.
        link: axes of different kernels with the same number are folded together, because they exchange tokens task by
            task; None for an axis that is folded by itself.
        follows: whether a linked axis of another kernel is chained; this one is then bundled in blocks, innermost.
    """

    extent: int
    how: How | None
    direction: int = 1
    streams: bool = False
    partial: bool = True
    reason: str = ""
    link: int | None = None
    follows: bool = False


def spatial(extent: int, streams: bool, reason: str) -> AxisRule:
    """The rule of an axis that must stay spatial."""
    return AxisRule(extent, None, streams=streams, reason=reason)


Place = tuple[int, int]
"""A kernel's position and one of its mesh axes."""

AxisPeers = dict[Place, set[Place]]
"""For axes whose tasks exchange tokens with the task at the same place of other kernels' axes: those axes."""


def closure(feeds: BoolArray) -> BoolArray:
    """Return whether a path of one or more streams leads from one kernel to another: (kernels, kernels)."""
    reach = feeds.copy()
    # Warshall 1962: after each round, paths through the kernels so far are known.
    for middle in range(len(reach)):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def link_axes(program: CompiledProgram, rules: list[list[AxisRule]], peers: AxisPeers, feeds: BoolArray) -> None:
    """Number the sets of axes that have to be folded together; axes of sets that cannot be folded stay spatial."""
    sets = DisjointSets(sorted({*peers, *(other for others in peers.values() for other in others)}))
    for place, others in peers.items():
        for other in others:
            sets.join(place, other)
    for number, places in enumerate(map(set, sets.groups())):
        reason = _obstacle(program, rules, peers, feeds, places)
        chained = any(rules[kernel][axis].how == "chain" for kernel, axis in places)
        if all(rules[kernel][axis].how == "chain" for kernel, axis in places):
            continue
        for kernel, axis in places & peers.keys():
            rule = rules[kernel][axis]
            if not reason:
                rules[kernel][axis] = replace(rule, link=number, follows=chained and rule.how == "bundle")
            elif rule.how == "bundle":
                rules[kernel][axis] = spatial(rule.extent, rule.streams, reason)


def _obstacle(
    program: CompiledProgram,
    rules: list[list[AxisRule]],
    peers: AxisPeers,
    feeds: BoolArray,
    places: set[Place],
) -> str:
    """Return the reason why axes that exchange tokens task by task cannot be folded together; empty if they can."""
    kernels = [kernel for kernel, _ in places]
    names = ", ".join(program.kernels[kernel].name for kernel in sorted(set(kernels)))
    if len(set(kernels)) != len(kernels):
        return f"streams between {names} connect an axis with two axes of one kernel"
    if len({program.kernels[kernel].mesh[axis] for kernel, axis in places}) > 1:
        return f"streams between {names} connect axes of different lengths"
    for kernel, axis in sorted(places):
        rule = rules[kernel][axis]
        chained = rule.how == "chain" and rule.streams and rule.direction > 0
        if (kernel, axis) not in peers or not (rule.how == "bundle" or chained):
            why = rules[kernel][axis].reason or "it has a fold of its own"
            return f"streams lead to {program.kernels[kernel].name}, axis {axis}, which must stay spatial: {why}"
    chained_places = {(kernel, axis) for kernel, axis in places if rules[kernel][axis].how == "chain"}
    for kernel, axis in sorted(places - chained_places) if chained_places else ():
        for other, _ in sorted(peers[kernel, axis] - chained_places):
            return f"streams lead to {program.kernels[other].name}, which follows a chain of another kernel itself"
    inside = sorted(set(kernels))
    outside = [kernel for kernel in range(len(feeds)) if kernel not in inside]
    # A path leaves the set and comes back: if the set is folded together, a node could wait for tokens that its own
    # later tasks cause.
    between = closure(feeds[np.ix_(outside, outside)]) | np.eye(len(outside), dtype=bool)
    if (feeds[np.ix_(inside, outside)] @ between @ feeds[np.ix_(outside, inside)]).any():
        return f"streams lead from {names} to another kernel and back"
    return ""


class _Endpoint(Frozen):
    """A stream port of one class of one kernel; `computed` if its stream is only one of those a task may use."""

    kernel: int
    cls: int
    port: StreamPort
    computed: bool


def axis_rules(program: CompiledProgram) -> tuple[tuple[AxisRule, ...], ...]:
    """The rules of every axis of every kernel."""
    ends = _endpoints(program)
    feeds = _feeds(len(program.kernels), ends)
    looped = set(np.flatnonzero(closure(feeds).diagonal()).tolist())
    peers: AxisPeers = {}
    rules = [_kernel_rules(program, n, ends, n in looped, peers) for n in range(len(program.kernels))]
    link_axes(program, rules, peers, feeds)
    return tuple(map(tuple, rules))


Endpoints = dict[str, tuple[list[_Endpoint], list[_Endpoint]]]


def _endpoints(program: CompiledProgram) -> Endpoints:
    """Return the ports that put to each stream array and get from it."""
    ends: Endpoints = {array.name: ([], []) for array in program.streams}
    for number, kernel in enumerate(program.kernels):
        for cls, task_class in enumerate(kernel.classes):
            for port in task_class.stream_ports:
                computed = port.stream.name in computed_arrays(task_class)
                ends[port.stream.name][port.direction == "get"].append(_Endpoint(number, cls, port, computed))
    return ends


def computed_arrays(task_class: TaskClass) -> set[str]:
    """Names of the stream arrays whose streams a task selects by data at run time.

    Arrays that the body counts through in a loop are not included: the tokens through each stream are then known.
    """
    whole = {bound.name for bound in task_class.body.streams if isinstance(bound, StreamArray)}
    return {port.stream.name for port in task_class.stream_ports if port.stream.name in whole and port.tokens is None}


def kernel_feeds(program: CompiledProgram) -> BoolArray:
    """Return whether streams lead from one kernel to another: (kernels, kernels)."""
    return _feeds(len(program.kernels), _endpoints(program))


def _feeds(count: int, ends: Endpoints) -> BoolArray:
    """Return whether streams lead from one kernel to another: (kernels, kernels)."""
    feeds = np.zeros((count, count), bool)
    for puts, gets in ends.values():
        for a in {end.kernel for end in puts}:
            feeds[a, [end.kernel for end in gets if end.kernel != a]] = True
    return feeds


def _kernel_rules(
    program: CompiledProgram, number: int, ends: Endpoints, looped: bool, peers: AxisPeers
) -> list[AxisRule]:
    """The rules of one kernel's axes; axes that must be folded together with others are noted in `peers`."""
    kernel = program.kernels[number]
    rank = len(kernel.mesh)
    irregular: dict[int, str] = {}
    signs: list[set[int]] = [set() for _ in range(rank)]
    for name, (puts, gets) in ends.items():
        own_puts, own_gets = [e for e in puts if e.kernel == number], [e for e in gets if e.kernel == number]
        for step in _distances(kernel, own_puts, own_gets):
            if isinstance(step, _Irregular):
                irregular.update(dict.fromkeys(step.axes, f"stream {name} connects tasks that are not at one distance"))
            else:
                for axis, distance in enumerate(step):
                    signs[axis] |= {int(np.sign(distance))} - {0}
    mixed = next((axis for axis, found in enumerate(signs) if len(found) > 1), None)
    rules = []
    for axis, extent in enumerate(kernel.mesh):
        streams = bool(signs[axis])
        if extent == 1:
            rules.append(AxisRule(1, None))
        elif axis in irregular:
            rules.append(spatial(extent, True, _RETURNS if looped else irregular[axis]))
        elif looped and streams:
            # Tokens leave the kernel and come back, so a task may wait for a later task of its own node. Index maps do
            # not tell whether it does.
            rules.append(spatial(extent, streams, _RETURNS))
        elif streams and mixed is not None:
            rules.append(spatial(extent, True, f"streams run both ways along axis {mixed}"))
        elif streams:
            rules.append(AxisRule(extent, "chain", signs[axis].pop(), streams=True))
            if linked := _linked_peers(program, number, axis, ends):
                peers[number, axis] = linked
        else:
            rule = _streamless_rule(program, number, axis, ends, peers)
            own = looped and (number, axis) not in peers
            rules.append(spatial(extent, streams, _RETURNS) if own else rule)
    return rules


_RETURNS = "streams lead to another kernel and back"


def _streamless_rule(
    program: CompiledProgram, number: int, axis: int, ends: Endpoints, peers_of: AxisPeers
) -> AxisRule:
    """The rule of an axis along which no stream of the kernel runs."""
    kernel = program.kernels[number]
    extent = kernel.mesh[axis]
    if class_varies(kernel, axis):
        return spatial(extent, False, "tasks along it are of different classes and no stream connects them")
    for port in (port for task_class in kernel.classes for port in task_class.tensor_ports):
        if port.writes and not port.tile.depends_on(axis):
            reason = f"tasks along it write the same tile of {port.tensor.name}"
            return AxisRule(extent, "chain", partial=False, reason=reason)
    linked: set[Place] = set()
    for name, (puts, gets) in ends.items():
        for mine, peers in ((puts, gets), (gets, puts)):
            own = [e for e in mine if e.kernel == number]
            other = [e for e in peers if e.kernel != number]
            if not own or not other or _is_one_task(program, other):
                continue
            for end in own:
                if not _same_peer(end, axis, other):
                    found = _peers_at_same_place(end, axis, other)
                    if not found:
                        return spatial(extent, False, f"stream {name} leads to a different task of another kernel each")
                    linked |= found
    if linked:
        peers_of[number, axis] = linked
    return AxisRule(extent, "bundle")


def _linked_peers(program: CompiledProgram, number: int, axis: int, ends: Endpoints) -> set[Place]:
    """The axes of other kernels that a chained axis exchanges tokens with task by task."""
    found: set[Place] = set()
    for puts, gets in ends.values():
        for mine, peers in ((puts, gets), (gets, puts)):
            other = [e for e in peers if e.kernel != number]
            for end in mine:
                if end.kernel == number and other and not _is_one_task(program, other):
                    found |= _peers_at_same_place(end, axis, other)
    return found


def _peers_at_same_place(end: _Endpoint, axis: int, peers: Sequence[_Endpoint]) -> set[Place]:
    """The axes of other kernels along which a port's peer moves as the task moves along `axis`; empty if it does not.

    The stream's index must name the task's place along the axis in one dimension of the array, and so must the index of
    every peer that it can meet.
    """
    index = end.port.index
    place = None if end.computed else place_along(index, axis)
    if place is None:
        return set()
    dim = place[0]
    found: set[Place] = set()
    for peer in peers:
        there = peer.port.index
        if peer.computed or not there.is_affine:
            return set()
        rows = zip(index.matrix, there.matrix, index.offset, there.offset, strict=True)
        if not all(any(a) or any(b) or mine == other for a, b, mine, other in rows):
            continue  # they differ in a dimension in which both are constant
        axes = [a for a, factor in enumerate(there.matrix[dim]) if factor]
        same = len(axes) == 1 and there.matrix[dim][axes[0]] == index.matrix[dim][axis]
        if not same or there.offset[dim] != index.offset[dim]:
            return set()
        found.add((peer.kernel, axes[0]))
    return found


def place_along(index: IndexMap, axis: int) -> Ints | None:
    """Return the one dimension of an index that a mesh axis, and no other, decides, with its factor and offset."""
    moved = [d for d, row in enumerate(index.matrix) if row[axis]]
    if not index.is_affine or len(moved) != 1 or sum(map(bool, index.matrix[moved[0]])) != 1:
        return None
    return moved[0], index.matrix[moved[0]][axis], index.offset[moved[0]]


def separate_axes(program: CompiledProgram, rules: Sequence[Sequence[AxisRule]], feeds: BoolArray) -> tuple[Ints, ...]:
    """Per kernel the axes along which tasks exchange tokens with tasks at the same place only, of all kernels.

    Kernels that exchange tokens have equally many, in one order.
    """
    sets: dict[object, dict[int, int]] = {}
    for kernel, own in enumerate(rules):
        for axis, rule in enumerate(own):
            if rule.how == "bundle":
                sets.setdefault((kernel, axis) if rule.link is None else rule.link, {})[kernel] = axis
    found: list[Ints] = [()] * len(rules)
    for axes in sets.values():
        inside = np.isin(np.arange(len(rules)), list(axes))
        ends = defaultdict[str, set[Ints | None]](set)
        for kernel, axis in axes.items():
            for task_class in program.kernels[kernel].classes:
                for port in task_class.stream_ports:
                    known = port.stream.name not in computed_arrays(task_class)
                    ends[port.stream.name].add(place_along(port.index, axis) if known else None)
        alike = all(len(own) == 1 and None not in own for own in ends.values())
        if alike and not (feeds | feeds.T)[inside][:, ~inside].any():
            for kernel, axis in axes.items():
                found[kernel] += (axis,)
    return tuple(found)


def _is_one_task(program: CompiledProgram, ends: Sequence[_Endpoint]) -> bool:
    """Return whether all ends belong to the only task of one kernel."""
    kernels = {end.kernel for end in ends}
    return len(kernels) == 1 and program.kernels[kernels.pop()].task_count == 1


def class_varies(kernel: Kernel, axis: int) -> bool:
    """Return whether the task class changes along a mesh axis."""
    return bool(kernel.varying_classes.shape[axis] > 1)


class _Irregular(Frozen):
    """A pair of ports whose tasks have no fixed distance along `axes`."""

    axes: Ints


def _distances(kernel: Kernel, puts: Sequence[_Endpoint], gets: Sequence[_Endpoint]) -> Iterator[Ints | _Irregular]:
    """Distance (consumer's pid minus producer's pid) of each pair of ports of one kernel that can meet."""
    rank = len(kernel.mesh)
    for source in puts:
        for target in gets:
            p, g = source.port.index, target.port.index
            if source.computed or target.computed:
                yield _Irregular(tuple(range(rank)))
                continue
            # An index determines pids axis by axis if every row and every column has at most one factor.
            used = [a for row in p.matrix for a, factor in enumerate(row) if factor]
            rows = [sum(map(bool, row)) for row in p.matrix]
            is_selection = len(set(used)) == len(used) and max(rows, default=0) <= 1
            if not (p.is_affine and g.is_affine and p.matrix == g.matrix and is_selection):
                yield _Irregular(tuple(a for a in range(rank) if p.depends_on(a) or g.depends_on(a)))
                continue
            step = [0] * rank
            meets = True
            for row, here, there in zip(p.matrix, p.offset, g.offset, strict=True):
                axis = next((a for a, factor in enumerate(row) if factor), None)
                if axis is None:
                    meets &= here == there
                else:
                    step[axis], rest = divmod(here - there, row[axis])
                    meets &= rest == 0
            if not meets:
                continue
            unseen = [a for a in range(rank) if kernel.mesh[a] > 1 and not p.depends_on(a)]
            loose = [a for a in unseen if not _same_place(kernel, a, source.cls, target.cls)]
            if loose:
                yield _Irregular(tuple(loose))
            yield tuple(step)


def _same_place(kernel: Kernel, axis: int, first: int, second: int) -> bool:
    """Return whether two classes can only meet at equal places of an axis.

    The stream's index does not depend on the axis.
    """
    table = kernel.class_table
    if table.shape[axis] == 1:
        return True
    places = [set(np.nonzero(table == cls)[axis].tolist()) for cls in (first, second)]
    return len(places[0] | places[1]) == 1


def _same_peer(end: _Endpoint, axis: int, peers: Sequence[_Endpoint]) -> bool:
    """Return whether all tasks along an axis reach the same task of another kernel through this port.

    True if the stream's index does not change along the axis. Also true if it changes in one dimension of the array
    that says nothing about the peer: each peer class has, per otherwise equal index map, a port for every value.
    """
    index = end.port.index
    if end.computed or any(peer.computed for peer in peers):
        return False
    if not index.depends_on(axis):
        return True
    if not index.is_affine:
        return False
    moved = [d for d, row in enumerate(index.matrix) if row[axis]]
    if len(moved) != 1:
        return False
    (dim,) = moved
    values = index.grid[dim]
    offsets: dict[object, set[int]] = {}
    for peer in peers:
        there = peer.port.index
        if not there.is_affine or any(there.matrix[dim]):
            return False
        rest = there.matrix, there.offset[:dim] + there.offset[dim + 1 :]
        offsets.setdefault((peer.kernel, peer.cls, rest), set()).add(there.offset[dim])
    return all(len(found) == values for found in offsets.values())
