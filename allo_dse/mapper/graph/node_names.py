"""Names of nodes, as Allo spells them.

task      <kernel>_<i>_<j>...
chain     the names of its parts, joined by `-`
bundle    the name of its first part, `x`, and how many there are
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from allo_dse.common.errors import AlloDseError
from allo_dse.program.compiled import CompiledProgram

from .groups import NodeGroup
from .tree import Repeat, Seq, Task, Tree


def task_names(program: CompiledProgram) -> list[str]:
    """The name of every task, by task id."""
    names: list[str] = []
    for kernel in program.kernels:
        prefixes = [kernel.name]
        for extent in kernel.mesh:
            digits = [f"_{i}" for i in range(extent)]
            prefixes = [prefix + digit for prefix, digit in itertools.product(prefixes, digits)]
        names += prefixes
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise AlloDseError(f"two tasks are called {twice}", hint="rename one of the kernels")
    return names


def chain_name(parts: Sequence[str]) -> str:
    return "-".join(parts)


def bundle_name(first: str, count: int) -> str:
    return f"{first}x{count}"


def node_name(task_name: Callable[[int], str], tree: Tree, leaves: Sequence[int]) -> str:
    """The name of a node that executes `leaves` (task ids) by a schedule tree."""
    if isinstance(tree, Task):
        return task_name(leaves[0])
    if isinstance(tree, Repeat):
        return bundle_name(node_name(task_name, tree.child, leaves[: tree.child.leaf_count]), tree.count)
    parts, start = [], 0
    for child in tree.children:
        parts.append(node_name(task_name, child, leaves[start : start + child.leaf_count]))
        start += child.leaf_count
    return chain_name(parts)


def short_node_name(program: CompiledProgram, group: NodeGroup, position: int) -> str:
    """A node of a group by its first task, with `-…` when it chains others and `x<count>` when it bundles.

    For messages and pictures: a name in full spells out every task of a chain.
    """
    tree = group.tree
    rounds, body = (tree.count, tree.child) if isinstance(tree, Repeat) else (1, tree)
    name = program.task_name(int(group.leaves.tasks(0, 1)[position, 0]))
    name += "-…" if isinstance(body, Seq) else ""
    return name + (f"x{rounds}" if rounds > 1 else "")


def unknown_name_hint(program: CompiledProgram, name: str, nodes: Collection[str]) -> str:
    """What the user may have meant by a name that no node has."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    parts = re.fullmatch(r"(.+?)((?:_\d+)+)", name)
    if parts and (kernel := kernels.get(parts[1])):
        first, last = (kernel.task_name(tuple(f * (n - 1) for n in kernel.mesh)) for f in (0, 1))
        return f"{kernel.name} has mesh {list(kernel.mesh)}: its tasks are {first} to {last}"
    if parts and (close := difflib.get_close_matches(parts[1], kernels, n=1)):
        meant = f"{close[0]}{parts[2]}"
        if meant in nodes:
            return f"did you mean {meant}?"
    close = difflib.get_close_matches(name, itertools.islice(nodes, 2000), n=1)
    return f"did you mean {close[0]}?" if close else "node names are in vmg.nodes"
