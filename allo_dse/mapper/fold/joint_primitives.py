"""Folds across kernels as `mapping_primitives`.

First every kernel by itself: what it chains, and the loops that it shares with no other kernel. Then, step by step
from the inside out (`JointFold.steps`), bundles of all nodes that exchange tokens along a linked axis, and chains of
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from .joint import JointFold, Step
from .mesh_primitives import Coordinate, Made, Plan, Primitives, bundle_nodes, chain_nodes, plans


@dataclass
class _Nodes:
    """The nodes of one kernel, or of several that share them.

    Attributes:
        links: the linked axes along which they are laid out.
        at: names of the nodes, by their places along `links`: the task's until the axis is bundled, then the node's.
    """

    links: tuple[int, ...]
    at: dict[Coordinate, tuple[str, ...]]


def joint_primitives(joint: JointFold) -> Primitives:
    """The sequence that folds the program's graph as a joint fold does."""
    made = Made()
    _make(joint, made)
    return made.primitives


def joint_names(joint: JointFold) -> dict[str, str]:
    """The nodes' names by their first task's, in the order in which the sequence makes them; tasks by themselves come
    first."""
    made = Made(heads=True)
    final = _make(joint, made)
    names = {made.first_task[name]: name for name in made.first_task if name in final}
    return dict(sorted(names.items(), key=lambda item: item[0] != item[1]))


def _make(joint: JointFold, made: Made) -> set[str]:
    """Carry out a joint fold; returns the names of the nodes that it leaves."""
    own = plans(joint.program, joint.fold, joint.rules)
    nodes: dict[int, _Nodes] = {}
    chained = [chain_nodes(plan, made) for plan in own]
    for kernel, (plan, names) in enumerate(zip(own, chained, strict=True)):
        nodes[kernel] = _by_links(plan, bundle_nodes(plan, names, made))
    for step in joint.steps or []:
        if step.chain:
            _chain(step, nodes, made)
        else:
            _bundle(step, joint, own, nodes, made)
    return {name for kernel in nodes.values() for row in kernel.at.values() for name in row}


def _by_links(plan: Plan, names: dict[Coordinate, str]) -> _Nodes:
    """A kernel's nodes by their places along linked axes; those at other places of other axes stand side by side."""
    axes = [axis for axis, rule in enumerate(plan.rules) if rule.link is not None]
    found: dict[Coordinate, list[str]] = {}
    for coordinate, name in names.items():
        found.setdefault(tuple(coordinate[axis] for axis in axes), []).append(name)
    links = tuple(link for axis in axes if (link := plan.rules[axis].link) is not None)
    return _Nodes(links, {place: tuple(row) for place, row in found.items()})


def _chain(step: Step, nodes: dict[int, _Nodes], made: Made) -> None:
    """Chain corresponding nodes; all members then hold the merged ones."""
    head, *others = (nodes[kernel] for kernel in step.chain)
    merged = {}
    rests = [{_key(other, place): row for place, row in other.at.items()} for other in others]
    for place, (name,) in head.at.items():
        for rest in rests:
            (follower,) = rest[_key(head, place)]
            name = made.chain(name, follower)
        merged[_key(head, place)] = (name,)
    for member in (head, *others):
        member.at = {place: merged[_key(member, place)] for place in member.at}


def _key(nodes: _Nodes, place: Coordinate) -> tuple[tuple[int, int], ...]:
    """A place, leaving out axes on which all nodes are at 0."""
    wide = [any(other[i] for other in nodes.at) for i in range(len(nodes.links))]
    return tuple(sorted((link, at) for link, at, kept in zip(nodes.links, place, wide, strict=True) if kept))


def _bundle(step: Step, joint: JointFold, own: list[Plan], nodes: dict[int, _Nodes], made: Made) -> None:
    """Bundle all nodes at one place of a linked axis with those at other places."""
    link = step.link
    assert link is not None
    taking = [kernel for kernel, loops in enumerate(joint.loops) if link in [other for other, _ in loops]]
    plan = own[taking[0]]
    axis = next(axis for axis, rule in enumerate(plan.rules) if rule.link == link)
    heads = [plan.pid(axis, u, 0) for u in range(plan.fold.axes[axis].spatial)]
    trips = plan.trips(axis)
    new_names: dict[str, str] = {}
    for u in range(len(heads)):
        places = range(1 if made.heads else trips)
        rows = [_nodes_at(nodes, taking, link, plan.pid(axis, u, v)) for v in places]
        new_names |= zip(rows[0], made.bundle(rows, trips), strict=True)
    for kernel in taking:
        mine = nodes[kernel]
        position = mine.links.index(link)
        kept = {}
        for u, first in enumerate(heads):
            for place, row in mine.at.items():
                if place[position] == first:
                    kept[*place[:position], u, *place[position + 1 :]] = tuple(new_names[name] for name in row)
        mine.at = kept


def _nodes_at(nodes: dict[int, _Nodes], kernels: list[int], link: int, value: int) -> tuple[str, ...]:
    """All nodes of some kernels at one place of a linked axis, each once."""
    names: dict[str, None] = {}
    for kernel in kernels:
        own = nodes[kernel]
        position = own.links.index(link)
        for place, row in own.at.items():
            if place[position] == value:
                names.update(dict.fromkeys(row))
    return tuple(names)
