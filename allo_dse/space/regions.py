"""Regions of a space: designs that differ in the fold only, and use the same number of nodes.

They are counted before any is made, so a search can rule them all out at once. The parts of a region fix the number of
nodes along each axis.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.fold_space import Layout

from .choices.kernel_folds import KernelFolds
from .design import Draft
from .genes import Genes, suggest_from
from .space import Candidate, Space


class Region(Struct, frozen=True):
    """Designs that differ in the fold only and have the same number of nodes; not made yet.

    Attributes:
        draft: with everything decided but the fold; `genes` decide it.
        nodes: number of nodes of each design.
        size: number of designs.
        layout: number of nodes along each axis; None if it differs between the designs.
    """

    draft: Draft
    genes: Genes
    nodes: int
    size: int
    _folds: KernelFolds
    layout: Layout | None = None

    def parts(self) -> Iterator[Region]:
        """Yield regions that partition the designs, always in the same order."""
        for layout in self._folds.space(self.draft.compiled).layouts(self.nodes):
            yield replace(self, size=layout.count, layout=layout)

    def candidates(self) -> Iterator[Candidate]:
        """Yield all designs, always in the same order."""
        if self.layout is None:
            for part in self.parts():
                yield from part.candidates()
            return
        for folded, genes in self._folds.of_layout(self.draft, self.layout):
            yield Candidate({**self.genes, **genes}, folded.params, folded.design())


def regions_with(space: Space, candidate: Candidate) -> Iterator[Region]:
    """Yield the region of a space that a design is in, and the part of it, if the space has regions."""
    fold, draft = candidate.design.fold, space.start
    position = _folds_of(space)
    if position is None or not isinstance(fold, MeshFold):
        return
    folds = space.choices[position]
    assert isinstance(folds, KernelFolds)
    for choice in (*space.choices[:position], *space.choices[position + 1 :]):
        decided = choice.decode(draft, suggest_from(candidate.genes))
        if decided is None:
            return
        draft = decided
    place = {kernel.kernel: number for number, kernel in enumerate(fold.kernels)}
    chains = tuple(tuple(place[name] for name in names) for names in fold.chains)
    sizes = tuple(tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels)
    region = Region(draft, candidate.genes, fold.node_count, 1, folds)
    yield region
    yield replace(region, layout=Layout(fold.chains, chains, sizes, ()))


def regions_of(space: Space) -> Iterator[Region] | None:
    """Yield regions that partition a space; None if a later choice depends on the fold."""
    position = _folds_of(space)
    return None if position is None else _regions(space, position)


def _folds_of(space: Space) -> int | None:
    """Return the position of the choice of folds; None if a later choice depends on the fold."""
    position = next((n for n, choice in enumerate(space.choices) if isinstance(choice, KernelFolds)), None)
    if position is None or any("fold" in choice.reads for choice in space.choices[position + 1 :]):
        return None
    return position


def _regions(space: Space, position: int) -> Iterator[Region]:
    folds, others = space.choices[position], (*space.choices[:position], *space.choices[position + 1 :])
    assert isinstance(folds, KernelFolds)
    for draft, genes in Space(space.start, others).drafts():
        for nodes, size in folds.space(draft.compiled).counts().items():
            yield Region(draft, genes, nodes, size, folds)
