"""Genes of folds.

Names: `fold.<kernel>.<axis>.spatial` (nodes along the axis), `fold.<kernel>.<axis>.how`,
`fold.<kernel>.<axis>.pattern`, `fold.<kernel>.order` (number of the permutation of the axes, lexicographic),
`fold.<kernel>.chain` (0: nodes of its own; n: it shares the nodes of the n-th kernel that it can be chained with). Axes
of several kernels that are folded together are named after the first kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from allo_dse.common.records import Ints
from allo_dse.mapper.axes import How
from allo_dse.mapper.fold.fold import AxisFold, Pattern

from ..genes import Gene, Genes, Suggest

HOW: tuple[How, ...] = ("bundle", "chain")
PATTERN: tuple[Pattern, ...] = ("cyclic", "block")


_HOW_GENE, _PATTERN_GENE = Gene(0, 1, "categorical", HOW), Gene(0, 1, "categorical", PATTERN)


class AxisOptions:
    """The legal folds of one mesh axis, arranged for decoding.

    Attributes:
        spatial: the legal numbers of nodes, ascending.
        varies: those of "spatial", "how" and "pattern" that leave a choice (the last two under the same `spatial`).
    """

    def __init__(self, options: Sequence[AxisFold]) -> None:
        self.by_spatial: dict[int, list[AxisFold]] = {}
        for option in options:
            self.by_spatial.setdefault(option.spatial, []).append(option)
        self.spatial = tuple(sorted(self.by_spatial))
        self.nearest = cache(self._nearest)
        groups = self.by_spatial.values()
        self.varies = {
            name for name in ("how", "pattern") if any(len({getattr(o, name) for o in g}) > 1 for g in groups)
        }
        if len(self.spatial) > 1:
            self.varies.add("spatial")

    def _nearest(self, wanted: int) -> int:
        """Return the legal number of nodes nearest in ratio to the wanted one; on a tie the smaller one."""
        return min(self.spatial, key=lambda s: (max(s, wanted) / min(s, wanted), s))

    def match(self, wanted: AxisFold, spatial: int) -> AxisFold:
        """Return the option onto `spatial` nodes most like the wanted one: first by `how`, then by `pattern`."""
        return min(self.by_spatial[spatial], key=lambda o: (o.how != wanted.how, o.pattern != wanted.pattern))


class KernelOptions(Struct, frozen=True):
    """The legal folds of each axis of one kernel's mesh.

    Attributes:
        axes: options per axis; kernels whose axes are folded together share one object.
        joins: positions of earlier kernels whose nodes it can share.
    """

    kernel: str
    axes: tuple[AxisOptions, ...]
    joins: tuple[int, ...] = ()


class KernelPlan(Struct, frozen=True):
    """A decided fold of one kernel: an option per axis, and the order of the axes, outermost first.

    Attributes:
        joined: position of a kernel whose nodes it shares; None when it has its own.
    """

    axes: tuple[AxisFold, ...]
    order: tuple[int, ...]
    joined: int | None = None

    @property
    def nodes(self) -> int:
        return math.prod(axis.spatial for axis in self.axes)


Heads = Sequence[int | None]
"""Per kernel the first kernel of the chain that it is a later member of; None for others."""


Wanted = tuple[tuple[AxisFold, ...], tuple[int | None, ...], tuple[Ints, ...]]
"""Folds that genes ask for: of each axis, the kernel that each kernel joins, and the order of each kernel's axes."""


def wanted_folds(kernels: Sequence[KernelOptions], suggest: Suggest, max_nodes: int) -> Wanted:
    """Return what genes ask for, each axis on its nearest legal number of nodes."""
    wanted: dict[AxisOptions, AxisFold] = {}
    for k in kernels:
        for n, axis in enumerate(k.axes):
            if axis not in wanted:
                name, spatial = f"fold.{k.kernel}.{n}", axis.spatial[0]
                if "spatial" in axis.varies:
                    spatial = axis.nearest(suggest(f"{name}.spatial", Gene(1, max(2, max_nodes), "log")))
                how = HOW[suggest(f"{name}.how", _HOW_GENE) if "how" in axis.varies else 0]
                pattern = PATTERN[suggest(f"{name}.pattern", _PATTERN_GENE) if "pattern" in axis.varies else 0]
                wanted[axis] = AxisFold(spatial, pattern, how)
    joined = tuple(_joined(kernel, position, suggest) for position, kernel in enumerate(kernels))
    return tuple(wanted.values()), joined, tuple(_order(kernel, suggest) for kernel in kernels)


def plans_of(
    kernels: Sequence[KernelOptions], wanted: Wanted, max_nodes: int, separated: Callable[[Heads], Heads]
) -> list[KernelPlan]:
    """Return the legal fold nearest to the wanted one, on at most `max_nodes` nodes where possible.

    Args:
        separated: takes kernels out of chains that are illegal with them.
    """
    folds, wants, orders = wanted
    axes = dict(zip(dict.fromkeys(axis for kernel in kernels for axis in kernel.axes), folds, strict=True))
    joined = separated([_first(wants, number) for number in range(len(kernels))])
    sizes = {axis: fold.spatial for axis, fold in axes.items()}
    _fit_budget(sizes, kernels, joined, max_nodes)
    return [
        KernelPlan(tuple(axis.match(axes[axis], sizes[axis]) for axis in kernel.axes), order, head)
        for kernel, head, order in zip(kernels, _sharing(kernels, joined, sizes), orders, strict=True)
    ]


def _joined(kernel: KernelOptions, position: int, suggest: Suggest) -> int | None:
    """Return the kernel whose nodes it shares.

    The number of candidates depends on the program, but the range of the gene must not.
    """
    if not kernel.joins:
        return None
    number = suggest(f"fold.{kernel.kernel}.chain", Gene(0, position, "categorical"))
    return kernel.joins[min(number, len(kernel.joins)) - 1] if number else None


def _first(joined: Sequence[int | None], kernel: int) -> int | None:
    """Return the first kernel of the chain that a kernel belongs to; None for the first itself."""
    head = joined[kernel]
    while head is not None and joined[head] is not None:
        head = joined[head]
    return head


def _sharing(
    kernels: Sequence[KernelOptions], joined: Sequence[int | None], sizes: Mapping[AxisOptions, int]
) -> list[int | None]:
    """Return the head of each kernel that has several nodes along the same axes as its head: they can share nodes."""
    layouts = [{axis for axis in kernel.axes if sizes[axis] > 1} for kernel in kernels]
    return [None if head is None or layouts[k] != layouts[head] else head for k, head in enumerate(joined)]


def encode_folds(kernels: Sequence[KernelOptions], plans: Sequence[KernelPlan]) -> Genes:
    """Return genes that decode to the given fold."""
    genes: Genes = {}
    seen: set[AxisOptions] = set()
    for kernel, plan in zip(kernels, plans, strict=True):
        for number, (fold, axis) in enumerate(zip(plan.axes, kernel.axes, strict=True)):
            if axis in seen:
                continue
            seen.add(axis)
            values = {"spatial": fold.spatial, "how": HOW.index(fold.how), "pattern": PATTERN.index(fold.pattern)}
            genes.update(
                {
                    f"fold.{kernel.kernel}.{number}.{field}": value
                    for field, value in values.items()
                    if field in axis.varies
                }
            )
        if len(kernel.axes) > 1:
            full = (*plan.order, *(a for a in range(len(kernel.axes)) if a not in plan.order))
            genes[f"fold.{kernel.kernel}.order"] = _orders(len(full))[0].index(full)
        if kernel.joins:
            number = 0 if plan.joined is None else 1 + kernel.joins.index(plan.joined)
            genes[f"fold.{kernel.kernel}.chain"] = number
    return genes


def _fit_budget(
    sizes: dict[AxisOptions, int], kernels: Sequence[KernelOptions], joined: Sequence[int | None], max_nodes: int
) -> None:
    """Shrink the largest factor of the largest kernel, step by step, until all nodes fit or nothing can shrink."""
    while True:
        nodes = [math.prod(sizes[axis] for axis in kernel.axes) for kernel in kernels]
        shared = (nodes[k] for k, head in enumerate(_sharing(kernels, joined, sizes)) if head is not None)
        if sum(nodes) - sum(shared) <= max_nodes:
            return
        shrinkable = [
            (nodes[k], sizes[axis], -k, -a, axis)
            for k, kernel in enumerate(kernels)
            for a, axis in enumerate(kernel.axes)
            if sizes[axis] > axis.spatial[0]
        ]
        if not shrinkable:
            return
        axis = max(shrinkable, key=lambda item: item[:4])[4]
        sizes[axis] = max(s for s in axis.spatial if s < sizes[axis])


def _order(kernel: KernelOptions, suggest: Suggest) -> Ints:
    orders, gene = _orders(len(kernel.axes))
    return orders[suggest(f"fold.{kernel.kernel}.order", gene) if len(orders) > 1 else 0]


@cache
def _orders(rank: int) -> tuple[list[Ints], Gene]:
    """Return all orders of a kernel's axes, and the gene that holds the position of one."""
    orders = list(itertools.permutations(range(rank)))
    return orders, Gene(0, len(orders) - 1, "categorical", tuple(" ".join(map(str, order)) for order in orders))
