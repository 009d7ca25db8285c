"""A space in regions: designs that differ in nothing but the fold, and are folded onto the same number of nodes.

How many designs a region has is known before any of them is made, so that a search can rule all of them out at once. A
region has parts, whose designs have the same number of nodes along each axis.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.mapper.search.fold_space import Layout

from .choices.kernel_folds import KernelFolds
from .draft import Draft
from .gene import Genes
from .space import Candidate, Space


class Region(Struct, frozen=True):
    """Designs that are not made yet.

    Attributes:
        draft: with everything decided but the fold; `genes` decide it.
        nodes: onto which all of them are folded.
        size: how many there are.
        layout: how many nodes all of them have along each axis; None where they differ in that.
    """

    draft: Draft
    genes: Genes
    nodes: int
    size: int
    _folds: KernelFolds
    layout: Layout | None = None

    def parts(self) -> Iterator[Region]:
        """Regions that have each of its designs in one of them, always in the same order."""
        for layout in self._folds.layouts(self.draft, self.nodes):
            yield replace(self, size=layout.count, layout=layout)

    def candidates(self) -> Iterator[Candidate]:
        """All of its designs, always in the same order."""
        if self.layout is None:
            for part in self.parts():
                yield from part.candidates()
            return
        for folded, genes in self._folds.of_layout(self.draft, self.layout):
            yield Candidate({**self.genes, **genes}, folded.params, folded.design())


def regions_of(space: Space) -> Iterator[Region] | None:
    """The regions of a space, which has each of its designs in one of them; None where choices hang on the fold."""
    position = next((n for n, choice in enumerate(space.choices) if isinstance(choice, KernelFolds)), None)
    if position is None or any("fold" in choice.reads for choice in space.choices[position + 1 :]):
        return None
    return _regions(space, position)


def _regions(space: Space, position: int) -> Iterator[Region]:
    folds, others = space.choices[position], (*space.choices[:position], *space.choices[position + 1 :])
    assert isinstance(folds, KernelFolds)
    for draft, genes in Space(space.start, others).drafts():
        for nodes, size in folds.counts(draft).items():
            yield Region(draft, genes, nodes, size, folds)
