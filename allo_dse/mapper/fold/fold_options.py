"""The legal folds of single axes and kernels, as the axis rules give them."""

from __future__ import annotations

import itertools
import math

from msgspec import Struct

from allo_dse.common.divisors import divisors_of

from ..axes.axes import AxisRule, How
from .fold import AxisFold, KernelFold


class AxisSpace(Struct, frozen=True):
    """The legal folds of one mesh axis.

    Attributes:
        axis: its position in the mesh.
        extent: tasks along it.
        how: how it is folded; None when it stays spatial.
        spatial: legal numbers of nodes along it, ascending.
        reason: why fewer than all divisors are legal; empty when they all are.
        block_only: whether nodes must have consecutive tasks.
    """

    axis: int
    extent: int
    how: How | None
    spatial: tuple[int, ...]
    reason: str
    block_only: bool = False

    def options(self, limit: int | None = None) -> tuple[AxisFold, ...]:
        """The legal folds with at most `limit` nodes along this axis, normalised."""
        return tuple(fold for n in self.spatial if limit is None or n <= limit for fold in self.options_for(n))

    def options_for(self, spatial: int) -> tuple[AxisFold, ...]:
        """The legal folds onto exactly `spatial` nodes, normalised."""
        if spatial == self.extent or self.how is None:
            return (AxisFold(spatial),)
        if spatial == 1 or self.how == "chain" or self.block_only:
            return (AxisFold(spatial, "block", self.how),)
        return (AxisFold(spatial, "block", self.how), AxisFold(spatial, "cyclic", self.how))

    def is_loop(self, spatial: int) -> bool:
        """Return whether folding onto `spatial` nodes makes a bundled loop, which has a place in the loop order."""
        return self.how == "bundle" and spatial < self.extent


class KernelSpace(Struct, frozen=True):
    """The legal folds of one kernel."""

    kernel: str
    axes: tuple[AxisSpace, ...]

    @property
    def least_nodes(self) -> int:
        """The fewest nodes the kernel can be folded onto."""
        return math.prod(axis.spatial[0] for axis in self.axes)

    def fold(self, axes: tuple[AxisFold, ...], order: tuple[int, ...] = ()) -> KernelFold:
        """The kernel's fold, normalised; `order` can be any permutation of mesh axes, only bundled loops count."""
        return KernelFold(self.kernel, axes, order).normalised(tuple(axis.extent for axis in self.axes))

    def orders(self, axes: tuple[AxisFold, ...]) -> list[tuple[int, ...]]:
        """The loop orders that differ for these axis folds, outermost loop first."""
        loops = [space.axis for space, fold in zip(self.axes, axes, strict=True) if space.is_loop(fold.spatial)]
        return list(itertools.permutations(loops))


def axis_space(axis: int, rule: AxisRule) -> AxisSpace:
    if rule.how is None:
        spatial: tuple[int, ...] = (rule.extent,)
    elif rule.how == "chain" and not rule.partial:
        spatial = (1, rule.extent)
    else:
        spatial = divisors_of(rule.extent)
    return AxisSpace(axis, rule.extent, rule.how, spatial, rule.reason, rule.follows)
