"""Allo as a target: designs that its AIE backend builds, up to the vendor's tools.

Folds that Allo rejects for the pattern of an axis are rewritten in the pattern that it accepts.
Tiles that nodes take in turn (cyclic) are adjacent and share a transfer between DRAM and a memory tile. If each node
has a block of its own, each needs a transfer of its own, and each transfer a channel of a shim tile.

    4 x 4 nodes, both axes in blocks: 16 transfers of C        the second axis cyclic: 4

A node has the same number of tasks either way, and the needs are otherwise equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from allo_dse.common.records import replace
from allo_dse.device.device import Device, NpuDevice
from allo_dse.eval.target import Target
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph

from ..fold_bounds import NpuFoldBounds
from .program_rules import MOST_TASKS
from .rule import Subject
from .rules import ALLO_RULES, FIFO_DEPTH
from .transfers import SHIM_PORTS

Axes = frozenset[tuple[int, int]]
"""Axes that are folded alike, as (kernel, axis)."""


def with_fewer_transfers(graph: ProgramGraph, fold: MeshFold, device: Device) -> MeshFold:
    """The normalised fold with axes made cyclic, one after the other, until blocks need no more transfers than there
    are channels; each time the axis that saves most, the last one of equals."""
    npu = NpuDevice.of(device)
    bounds = NpuFoldBounds(graph, npu)
    limit = npu.array.columns * SHIM_PORTS
    excess = _excess(bounds, fold, limit)
    while excess:
        options = [_cyclic(fold, axes) for axes in _blocks(graph, fold)]
        best = min(reversed(options), key=lambda option: _excess(bounds, option, limit), default=fold)
        left = _excess(bounds, best, limit)
        if left >= excess:
            return fold
        fold, excess = best, left
    return fold


def least_transfers(bounds: NpuFoldBounds, fold: MeshFold) -> Counter[str]:
    """Return the least number of transfers that a fold needs, per direction: blocks do not share any."""
    found: Counter[str] = Counter()
    for number, (kernel, own) in enumerate(zip(bounds.program.kernels, fold.kernels, strict=True)):
        for side in bounds.moved[number]:
            found[side.key[1]] += math.prod(
                choice.spatial
                for axis, (choice, extent) in enumerate(zip(own.axes, kernel.mesh, strict=True))
                if choice.pattern == "block" and choice.spatial < extent and side.port.tile.depends_on(axis)
            )
    return found


def _excess(bounds: NpuFoldBounds, fold: MeshFold, limit: int) -> int:
    return sum(max(0, needed - limit) for needed in least_transfers(bounds, fold).values())


def _blocks(graph: ProgramGraph, fold: MeshFold) -> Iterator[Axes]:
    """Yield axes in blocks that can be cyclic; linked axes of several kernels come together."""
    linked: dict[object, set[tuple[int, int]]] = {}
    fixed: set[object] = set()
    for number, (own, rules) in enumerate(zip(fold.kernels, graph.rules, strict=True)):
        for axis, (choice, rule) in enumerate(zip(own.axes, rules, strict=True)):
            key = (number, axis) if rule.link is None else rule.link
            if choice.pattern == "block" and 1 < choice.spatial < rule.extent:
                linked.setdefault(key, set()).add((number, axis))
                if choice.how == "chain" or rule.follows:
                    fixed.add(key)
    yield from (frozenset(axes) for key, axes in linked.items() if key not in fixed)


def _cyclic(fold: MeshFold, axes: Axes) -> MeshFold:
    kernels = tuple(
        replace(
            own,
            axes=tuple(
                replace(choice, pattern="cyclic") if (number, axis) in axes else choice
                for axis, choice in enumerate(own.axes)
            ),
        )
        for number, own in enumerate(fold.kernels)
    )
    return replace(fold, kernels=kernels)


ALLO = Target("allo", ALLO_RULES, frozenset({"host_buffers"}), MOST_TASKS, FIFO_DEPTH, with_fewer_transfers, Subject)
