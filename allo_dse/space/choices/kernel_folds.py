"""Whole kernels folded along the axes of their meshes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.errors import IllegalFold
from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import KernelFold, MeshFold
from allo_dse.mapper.fold.fold_space import FoldSpace, Layout
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program

from ..backend import backend_of
from ..design import Draft
from ..genes import Genes
from .fold_genes import AxisOptions, Heads, KernelOptions, KernelPlan
from .folds import Fold, FoldChoice

if TYPE_CHECKING:
    from allo_dse.device.device import Device


class KernelFolds(FoldChoice):
    """Folds of whole kernels by the mapper's rules.

    Args:
        device: its compute tiles bound the number of nodes.
        respell: replaces a fold that the builder would reject by an equivalent one; None when it builds any.
    """

    def __init__(
        self, device: Device, respell: Callable[[ProgramGraph, MeshFold, Device], MeshFold] | None = None
    ) -> None:
        super().__init__(device.max_nodes)
        self._device = device
        self._respell = respell
        self._spaces: dict[Program, FoldSpace] = {}
        self._options: dict[Program, tuple[KernelOptions, ...]] = {}

    def kernels(self, program: Program) -> Sequence[KernelOptions]:
        """Return the legal folds of each kernel's axes, onto at most as many nodes as the device has.

        Raises:
            IllegalFold: when every fold of the program needs more nodes.
        """
        if program not in self._options:
            space = self.space(program)
            if space.least_nodes > self.max_nodes:
                raise IllegalFold(
                    f"{program.name} needs {space.least_nodes} nodes or more, and {self._device.name} "
                    f"has {self.max_nodes}",
                    hint="; ".join(space.reasons[:3]),
                )
            linked: dict[int, AxisOptions] = {}
            result = []
            for kernel, rules, heads in zip(space.kernels, space.rules, space.heads, strict=True):
                axes = []
                for axis, rule in zip(kernel.axes, rules, strict=True):
                    own = AxisOptions(axis.options(self.max_nodes)) if rule.link not in linked else linked[rule.link]
                    if rule.link is not None:
                        linked[rule.link] = own
                    axes.append(own)
                result.append(KernelOptions(kernel.kernel, tuple(axes), heads))
            self._options[program] = tuple(result)
        return self._options[program]

    def space(self, program: Program) -> FoldSpace:
        """Return the legal folds of a program; cached."""
        if program not in self._spaces:
            graph = program.vmg.graph
            bounds = backend_of(self._device).fold_bounds(graph, self._device)
            self._spaces[program] = FoldSpace.of(graph, self.max_nodes, bounds)
        return self._spaces[program]

    def separated(self, program: Program, heads: Heads) -> Heads:
        """Return the heads without those of kernels that streams lead out of their chain and back into it."""
        graph = program.vmg.graph.kernels
        chains: dict[int, list[int]] = {}
        for kernel, head in enumerate(heads):
            if head is not None:
                chains.setdefault(head, [head]).append(kernel)
        refused = {member for _, member in graph.refusals(graph.normalised(list(chains.values())))}
        return [None if kernel in refused else head for kernel, head in enumerate(heads)]

    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> MeshFold | None:
        """Return the normalised fold, or None when it needs more nodes than there are or breaks a rule.

        Loops shared by several kernels take the order of the first kernel; those shared by most kernels come first.
        """
        space = self.space(program)
        kernels = list(zip(program.kernels, plans, space.joint_orders([plan.order for plan in plans]), strict=True))
        chains: dict[int, list[str]] = {}
        for number, plan in enumerate(plans):
            if plan.joined is not None:
                chains.setdefault(plan.joined, [program.kernels[plan.joined].name]).append(program.kernels[number].name)
        # Of axes that are folded together, some are chained and some bundled.
        folds = tuple(
            KernelFold(
                kernel.name,
                tuple(
                    axis if rule.how in (None, axis.how) or axis.spatial == rule.extent else replace(axis, how=rule.how)
                    for axis, rule in zip(plan.axes, rules, strict=True)
                ),
                order,
            )
            for (kernel, plan, order), rules in zip(kernels, space.rules, strict=True)
        )
        fold = MeshFold(folds, tuple(map(tuple, chains.values()))).normalised(program.vmg.graph)
        return fold if space.is_legal(fold) else None

    def buildable(self, program: Program, fold: Fold) -> Fold:
        if self._respell is None or not isinstance(fold, MeshFold):
            return fold
        return self._respell(program.vmg.graph, fold, self._device)

    def plans(self, fold: Fold) -> list[KernelPlan]:
        if not isinstance(fold, MeshFold):
            raise IllegalFold("the fold is one of single tasks", hint='declare the study with folds="tasks"')
        position = {kernel.kernel: number for number, kernel in enumerate(fold.kernels)}
        head = {name: position[members[0]] for members in fold.chains for name in members[1:]}
        return [KernelPlan(kernel.axes, kernel.order, head.get(kernel.kernel)) for kernel in fold.kernels]

    def folds(self, program: Program) -> Iterator[Fold]:
        return iter(self.space(program))

    def contains(self, program: Program, fold: MeshFold) -> bool:
        """Return whether `folds` yields a fold."""
        return self.space(program).contains(fold)

    def fold_count(self, program: Program, limit: int) -> int:
        count = self.space(program).count_within(limit)
        return limit + 1 if count is None else count

    def probe_count(self, program: Program, rng: np.random.Generator) -> int:
        return self.space(program).probe(rng)

    def of_layout(self, draft: Draft, layout: Layout) -> Iterator[tuple[Draft, Genes]]:
        """Yield the options with these numbers of nodes along each axis."""
        for fold in layout.folds():
            yield replace(draft, fold=fold), self._genes(draft, fold)
