"""How the program's kernels or tasks are folded onto nodes: what every such choice has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.node_fold import NodeFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program

from ..design import Design
from ..draft import Draft
from ..gene import Genes, Suggest
from .fold_genes import KernelOptions, KernelPlan, decode_folds, encode_folds

if TYPE_CHECKING:
    from allo_dse.device.device import Device
    from allo_dse.mapper.search.fold_bounds import FoldBounds

Fold = MeshFold | NodeFold


class FoldChoice(ABC):
    """A fold, as plans of its kernels. Genes: those of `fold_genes`.

    Args:
        max_nodes: how many nodes a fold may have.
    """

    reads = frozenset({"program"})
    writes = frozenset({"fold"})

    def __init__(self, max_nodes: int) -> None:
        self.max_nodes = max_nodes

    @abstractmethod
    def kernels(self, program: Program) -> Sequence[KernelOptions]:
        """The legal folds of each kernel; cached with the program."""

    @abstractmethod
    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> Fold | None:
        """The fold of these plans in canonical form, or None when it is not legal as a whole."""

    def buildable(self, program: Program, fold: Fold) -> Fold:
        """The fold that is meant by one that what builds the design would refuse."""
        return fold

    @abstractmethod
    def plans(self, fold: Fold) -> list[KernelPlan]:
        """The inverse of `fold`."""

    @abstractmethod
    def folds(self, program: Program) -> Iterator[Fold]:
        """Every legal fold."""

    @abstractmethod
    def fold_count(self, program: Program) -> int:
        """How many folds `folds` yields."""

    def decode(self, draft: Draft, suggest: Suggest) -> Draft | None:
        plans = decode_folds(self.kernels(draft.compiled), suggest, self.max_nodes)
        fold = self.fold(draft.compiled, plans)
        if fold is None:
            return None
        return replace(draft, fold=fold if draft.literal else self.buildable(draft.compiled, fold))

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        for fold in self.folds(draft.compiled):
            yield replace(draft, fold=fold), self._genes(draft, fold)

    def count(self, draft: Draft, limit: int) -> int:
        return self.fold_count(draft.compiled)

    def encode(self, draft: Draft, design: Design) -> Genes:
        return self._genes(draft, design.fold)

    def _genes(self, draft: Draft, fold: Fold) -> Genes:
        return encode_folds(self.kernels(draft.compiled), self.plans(fold))

    def describe(self) -> dict[str, object]:
        return {"max_nodes": self.max_nodes}


def bounds_of(graph: ProgramGraph, device: Device) -> FoldBounds | None:
    """Lower bounds on what folds need, to leave out those that cannot fit."""
    from allo_dse.device.device import NpuDevice
    from allo_dse.mapper.search.fold_bounds import FoldBounds

    return FoldBounds(graph, device) if isinstance(device, NpuDevice) else None
