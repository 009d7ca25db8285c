"""Folds of kernels or single tasks onto nodes: the common base, and folds task by task."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from allo_dse.common.errors import IllegalFold
from allo_dse.common.records import MOST_SMALL_KEPT, keep, once, replace
from allo_dse.device.device import Device
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.node_fold_search import NodeFold, anything_fits, beam_folds, node_folds
from allo_dse.mapper.graph.groups import task_names
from allo_dse.mapper.program import Program

from ..backend import backend_of
from ..design import Design, Draft
from ..genes import Genes, Suggest, random_suggest
from .fold_genes import Heads, KernelOptions, KernelPlan, Wanted, encode_folds, plans_of, wanted_folds

Fold = MeshFold | NodeFold


class FoldChoice(ABC):
    """A fold, given by plans of its kernels. Genes: see `fold_genes`.

    Args:
        max_nodes: largest number of nodes of a fold.
    """

    reads = frozenset({"program"})
    writes = frozenset({"fold"})

    def __init__(self, max_nodes: int) -> None:
        self.max_nodes = max_nodes
        self._decoded: dict[tuple[Program, bool, Wanted], Fold | None] = {}

    @abstractmethod
    def kernels(self, program: Program) -> Sequence[KernelOptions]:
        """The legal folds of each kernel; cached with the program."""

    @abstractmethod
    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> Fold | None:
        """The fold of these plans in canonical form, or None when it is not legal as a whole."""

    def separated(self, program: Program, heads: Heads) -> Heads:
        """Return the head of each kernel's chain, None where the chain is illegal with it."""
        return heads

    def buildable(self, program: Program, fold: Fold) -> Fold:
        """Return the equivalent fold that the builder accepts."""
        return fold

    @abstractmethod
    def plans(self, fold: Fold) -> list[KernelPlan]:
        """The inverse of `fold`."""

    @abstractmethod
    def folds(self, program: Program) -> Iterator[Fold]:
        """Every legal fold."""

    @abstractmethod
    def fold_count(self, program: Program, limit: int) -> int:
        """Return the number of folds that `folds` yields, or a larger number than `limit`."""

    def probe_count(self, program: Program, rng: np.random.Generator) -> int:
        """Return an unbiased estimate of the number of folds; by default all are counted."""
        return self.fold_count(program, sys.maxsize)

    def decode(self, draft: Draft, suggest: Suggest) -> Draft | None:
        program, kernels = draft.compiled, self.kernels(draft.compiled)
        wanted = wanted_folds(kernels, suggest, self.max_nodes)
        key = program, draft.literal, wanted
        if key not in self._decoded:  # proposals repeat those of the last generations
            plans = plans_of(kernels, wanted, self.max_nodes, partial(self.separated, program))
            fold = self.fold(program, plans)
            built = fold if fold is None or draft.literal else self.buildable(program, fold)
            keep(self._decoded, key, built, MOST_SMALL_KEPT)
        found = self._decoded[key]
        return None if found is None else replace(draft, fold=found)

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        for fold in self.folds(draft.compiled):
            yield replace(draft, fold=fold), self._genes(draft, fold)

    def count(self, draft: Draft, limit: int) -> int:
        return self.fold_count(draft.compiled, limit)

    def probe(self, draft: Draft, rng: np.random.Generator) -> tuple[Draft | None, int]:
        ways = self.probe_count(draft.compiled, rng)
        # Most random genes have a legal fold; it matters only to choices that read it.
        return (self.decode(draft, random_suggest(rng)) or draft) if ways else None, ways

    def encode(self, draft: Draft, design: Design) -> Genes:
        return self._genes(draft, design.fold)

    def _genes(self, draft: Draft, fold: Fold) -> Genes:
        return encode_folds(self.kernels(draft.compiled), self.plans(fold))

    def describe(self) -> dict[str, object]:
        return {"max_nodes": self.max_nodes}


# `Study(..., folds="tasks")`: single tasks grouped in nodes, for programs whose kernels cannot be folded as a whole.
# Each task takes a new node or the node of an earlier task. Small programs are enumerated; larger ones use the folds of
# a beam search and the proposals of a sampler.


MOST_ENUMERATED = 8
"""Programs with more tasks are not enumerated: a set of 8 has 4,140 partitions, one of 12 has 4,213,597."""


class TaskFolds(FoldChoice):
    """Folds task by task: each task is a kernel without axes, which can join any earlier one.

    Args:
        device: its compute tiles bound the number of nodes.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device.max_nodes)
        self._device = device
        self._options: dict[Program, tuple[KernelOptions, ...]] = {}
        self._found: dict[Program, tuple[NodeFold, ...]] = {}

    def kernels(self, program: Program) -> Sequence[KernelOptions]:
        """For every task, the tasks before it whose node it can share."""
        return once(
            self._options,
            program,
            lambda: tuple(KernelOptions(name, (), tuple(range(n))) for n, name in enumerate(task_names(program))),
        )

    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> NodeFold | None:
        """The fold, or None when it needs more nodes than there are."""
        sets: dict[int, list[int]] = {}
        for task, plan in enumerate(plans):
            sets.setdefault(task if plan.joined is None else plan.joined, []).append(task)
        fold = NodeFold.of(program.vmg.graph, list(sets.values()))
        try:
            program.vmg.fold(fold)
        except IllegalFold:
            return None
        return fold if fold.node_count <= self.max_nodes else None

    def plans(self, fold: Fold) -> list[KernelPlan]:
        if not isinstance(fold, NodeFold):
            raise IllegalFold("the fold is one of whole kernels", hint='declare the study with folds="kernels"')
        first = {task: min(map(fold.names.index, own)) for own in fold.nodes for task in own}
        heads = [first.get(name, number) for number, name in enumerate(fold.names)]
        return [KernelPlan((), (), None if head == number else head) for number, head in enumerate(heads)]

    def folds(self, program: Program) -> Iterator[Fold]:
        """Yield the folds of a program.

        A small program yields all folds, up to an exchange of equal tasks. A larger one yields those of the beam
        search.
        """
        yield from self._node_folds(program)

    def fold_count(self, program: Program, limit: int) -> int:
        return len(self._node_folds(program))

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "folds": "tasks"}

    def _node_folds(self, program: Program) -> tuple[NodeFold, ...]:
        if program not in self._found:
            graph = program.vmg.graph
            bounds = backend_of(self._device).fold_bounds(graph, self._device)
            search = node_folds if program.task_count <= MOST_ENUMERATED else beam_folds
            fits = bounds.tasks_fit if bounds is not None else anything_fits
            self._found[program] = tuple(search(graph, self.max_nodes, fits=fits))
        return self._found[program]
