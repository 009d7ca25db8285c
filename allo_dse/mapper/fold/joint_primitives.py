"""Folds across kernels as `mapping_primitives`.

First every kernel by itself: what it chains, and the loops that it shares with no other kernel. Then, step by step
from the inside out (`JointFold.steps`), bundles of all nodes that exchange tokens along a linked axis, and chains of
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.node_names import bundle_name, chain_name
from .joint import JointFold, Step
from .mesh_primitives import Coordinate, Plan, Primitives, bundle_nodes, chain_nodes, plans


@dataclass
class _Nodes:
    """The nodes of one kernel, or of several that share them.

    Attributes:
        links: the linked axes along which they are laid out.
        at: names of the nodes, by their places along `links`: the task's until the axis is bundled, then the node's.
    """

    links: tuple[int, ...]
    at: dict[Coordinate, tuple[str, ...]]


def joint_primitives(joint: JointFold) -> tuple[Primitives, dict[str, str]]:
    """The sequence that folds the program's graph as a joint fold does, and the nodes' names by their first task's."""
    primitives: Primitives = []
    own = plans(joint.program, joint.fold, joint.rules)
    nodes: dict[int, _Nodes] = {}
    first_task: dict[str, str] = {}
    chained = [chain_nodes(plan, primitives, first_task) for plan in own]
    for kernel, (plan, names) in enumerate(zip(own, chained, strict=True)):
        nodes[kernel] = _by_links(plan, bundle_nodes(plan, names, primitives, first_task))
    for step in joint.steps or []:
        if step.chain:
            _chain(step, nodes, primitives, first_task)
        else:
            _bundle(step, joint, nodes, primitives, first_task)
    final = {name for kernel in nodes.values() for row in kernel.at.values() for name in row}
    return primitives, {first_task[name]: name for name in final}


def _by_links(plan: Plan, names: dict[Coordinate, str]) -> _Nodes:
    """A kernel's nodes by their places along linked axes; those at other places of other axes stand side by side."""
    axes = [axis for axis, rule in enumerate(plan.rules) if rule.link is not None]
    found: dict[Coordinate, list[str]] = {}
    for coordinate, name in names.items():
        found.setdefault(tuple(coordinate[axis] for axis in axes), []).append(name)
    links = tuple(link for axis in axes if (link := plan.rules[axis].link) is not None)
    return _Nodes(links, {place: tuple(row) for place, row in found.items()})


def _chain(step: Step, nodes: dict[int, _Nodes], primitives: Primitives, first_task: dict[str, str]) -> None:
    """Chain corresponding nodes; all members then hold the merged ones."""
    head, *others = (nodes[kernel] for kernel in step.chain)
    merged = {}
    rests = [{_key(other, place): row for place, row in other.at.items()} for other in others]
    for place, (name,) in head.at.items():
        for rest in rests:
            (follower,) = rest[_key(head, place)]
            primitives.append(("chain", [name, follower]))
            joined = chain_name((name, follower))
            first_task[joined] = first_task[name]
            name = joined
        merged[_key(head, place)] = (name,)
    for member in (head, *others):
        member.at = {place: merged[_key(member, place)] for place in member.at}


def _key(nodes: _Nodes, place: Coordinate) -> tuple[tuple[int, int], ...]:
    """A place, leaving out axes on which all nodes are at 0."""
    wide = [any(other[i] for other in nodes.at) for i in range(len(nodes.links))]
    return tuple(sorted((link, at) for link, at, kept in zip(nodes.links, place, wide, strict=True) if kept))


def _bundle(
    step: Step, joint: JointFold, nodes: dict[int, _Nodes], primitives: Primitives, first_task: dict[str, str]
) -> None:
    """Bundle all nodes at one place of a linked axis with those at other places."""
    link = step.link
    assert link is not None
    taking = [kernel for kernel, loops in enumerate(joint.loops) if link in [other for other, _ in loops]]
    plan, axis = _axis_of(joint, taking[0], link)
    new_names: dict[str, str] = {}
    for u in range(plan.fold.axes[axis].spatial):
        rows = [_nodes_at(nodes, taking, link, plan.pid(axis, u, v)) for v in range(plan.trips(axis))]
        primitives.append(("bundle", rows if len(rows[0]) > 1 else [row[0] for row in rows]))
        for name in rows[0]:
            new_names[name] = bundle_name(name, len(rows))
            first_task[new_names[name]] = first_task[name]
    for kernel in taking:
        own = nodes[kernel]
        position = own.links.index(link)
        kept = {}
        for u in range(plan.fold.axes[axis].spatial):
            first = plan.pid(axis, u, 0)
            for place, row in own.at.items():
                if place[position] == first:
                    kept[*place[:position], u, *place[position + 1 :]] = tuple(new_names[name] for name in row)
        own.at = kept


def _axis_of(joint: JointFold, kernel: int, link: int) -> tuple[Plan, int]:
    plan = plans(joint.program, joint.fold, joint.rules)[kernel]
    return plan, next(axis for axis, rule in enumerate(plan.rules) if rule.link == link)


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
