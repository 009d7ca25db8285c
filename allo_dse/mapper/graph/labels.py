"""Short names of nodes for messages and pictures: a name in full spells out every task of a chain."""

from __future__ import annotations

from allo_dse.program.compiled import CompiledProgram

from .groups import NodeGroup
from .tree import Repeat, Seq


def short_node_name(program: CompiledProgram, group: NodeGroup, position: int) -> str:
    """A node of a group by its first task, with `-…` when it chains others and `x<count>` when it bundles."""
    tree = group.tree
    rounds, body = (tree.count, tree.child) if isinstance(tree, Repeat) else (1, tree)
    name = program.task_name(int(group.leaves.tasks(0, 1)[position, 0]))
    name += "-…" if isinstance(body, Seq) else ""
    return name + (f"x{rounds}" if rounds > 1 else "")
