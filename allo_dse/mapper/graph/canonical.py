"""The canonical form of a folded graph, and its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from allo_dse.program.compiled import CompiledProgram

from .groups import NodeGroup
from .tree import text


def graph_key(program: CompiledProgram, groups: Sequence[NodeGroup]) -> str:
    """Hash of the folded graph; equal exactly for equal graphs, however they were folded and in whatever order.

    What is hashed is stated per task (the first task of its node, its place in that node, its node's schedule tree), so
    that the order of nodes and groups plays no role.
    """
    trees = [text(group.tree) for group in groups]
    rank = {tree: number for number, tree in enumerate(sorted(set(trees)))}
    form = np.empty((3, program.task_count), np.int32)
    for group, tree in zip(groups, trees, strict=True):
        tasks = group.leaves.tasks()
        form[0, tasks] = tasks[:, :1]
        form[1, tasks] = np.arange(tasks.shape[1])
        form[2, tasks] = rank[tree]
    digest = hashlib.blake2b(program_key(program).encode(), digest_size=16)
    digest.update(json.dumps(sorted(rank)).encode())
    digest.update(form.tobytes())
    return digest.hexdigest()


def program_key(program: CompiledProgram) -> str:
    """What tells programs apart as far as mapping goes: kernels, meshes and classes."""
    kernels = [[k.name, list(k.mesh), [c.name for c in k.classes]] for k in program.kernels]
    return json.dumps([program.name, kernels])
