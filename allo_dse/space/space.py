"""The space of a study: every legal combination of the options of its choices."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.mapper.fold.every_fold import Layout

from .choice import Gene, Genes, Suggest, suggest_from
from .choices.kernel_folds import KernelFolds
from .choices.parameters import Meaning, ParameterChoice, Positions
from .design import Draft
from .params import Assignment

if TYPE_CHECKING:
    from .choice import Choice
    from .design import Design


class Candidate(Struct, frozen=True):
    """A proposed design, with the genes it was decoded from."""

    genes: Genes
    params: Assignment
    design: Design

    @property
    def key(self) -> str:
        return self.design.key


class Space:
    """Generates designs, counts them when they are few, and converts them to and from genes.

    Args:
        start: a draft with everything that is decided beforehand.
        choices: in the order in which they are made; each reads only fields that earlier ones write.

    Attributes:
        genes: the range of every gene met so far.
    """

    def __init__(self, start: Draft, choices: Sequence[Choice]) -> None:
        self.start = start
        self.choices = tuple(choices)
        self.genes: dict[str, Gene] = {}
        decided = {name for choice in self.choices for name in choice.writes}
        for choice in self.choices:
            late = choice.reads & decided - {name for c in self._before(choice) for name in c.writes}
            if late:
                raise StudyError(
                    f"{type(choice).__name__} depends on {', '.join(sorted(late))}, which is decided after it",
                    hint="order the choices so that each comes after those it depends on",
                )

    def _before(self, choice: Choice) -> Sequence[Choice]:
        return self.choices[: self.choices.index(choice)]

    def decode(self, suggest: Suggest, *, literal: bool = False) -> Candidate | None:
        """Return the design of the genes, or None where a condition of the study or the folding rules forbid it.

        Args:
            literal: see `Draft`.
        """
        genes: Genes = {}

        def ask(name: str, gene: Gene) -> int:
            self.genes[name] = gene
            genes[name] = suggest(name, gene)
            return genes[name]

        draft, undecided = replace(self.start, literal=literal) if literal else self.start, frozenset[str]()
        for choice in self.choices:
            if undecided & choice.reads:
                return None
            decided = choice.decode(draft, ask)
            if decided is None:
                # Ask the others anyway, so that the proposals of a seed do not depend on which options are illegal.
                undecided |= choice.writes
            else:
                draft = decided
        return None if undecided else Candidate(genes, draft.params, draft.design())

    def decode_genes(self, genes: Genes, *, literal: bool = False) -> Candidate | None:
        """The design of stored genes."""
        return self.decode(suggest_from(genes), literal=literal)

    def learn(self, genes: Genes) -> Genes:
        """The genes of a design of this space, whose ranges are all in `genes` from now on."""
        if not genes.keys() <= self.genes.keys():
            self.decode_genes(genes)
        return genes

    def encode(self, design: Design) -> Genes:
        """Genes that decode to this design.

        Raises:
            StudyError: when it is not in the space.
        """
        draft, genes = self.start, Genes()
        for choice in self.choices:
            own = choice.encode(draft, design)
            decided = choice.decode(draft, suggest_from(own))
            if decided is None:
                raise StudyError(f"the design is not in the space: {type(choice).__name__} does not allow it")
            draft = decided
            genes.update(own)
        return genes

    def count(self, limit: int) -> int | None:
        """Return the number of designs that the space generates, or None if it exceeds `limit`.

        It is None too if a choice has more options that lead to no design.
        """
        total = self._count(0, self.start, limit)
        return total if total <= limit else None

    def _count(self, position: int, draft: Draft, limit: int) -> int:
        """Return the number of designs once the choices before a position are made.

        A choice is counted without being made only if no later choice depends on it.
        """
        if position == len(self.choices):
            return 1
        choice, later = self.choices[position], self.choices[position + 1 :]
        if not any(choice.writes & other.reads for other in later):
            own = choice.count(draft, limit)
            return own * self._count(position + 1, draft, limit) if own else 0
        total = 0
        for made, (option, _) in enumerate(choice.options(draft)):
            if made >= max(1, limit):
                return limit + 1
            total += self._count(position + 1, option, limit) if option is not None else 0
            if total > limit:
                break
        return total

    def designs(self) -> Iterator[Candidate]:
        """Every design; the last choice varies fastest."""
        for draft, genes in self.drafts():
            yield Candidate(genes, draft.params, draft.design())

    def drafts(self) -> Iterator[tuple[Draft, Genes]]:
        """Every way to make all choices, and the genes that mean it."""
        return self._drafts(0, self.start)

    def _drafts(self, position: int, draft: Draft) -> Iterator[tuple[Draft, Genes]]:
        if position == len(self.choices):
            yield draft, {}
            return
        for option, genes in self.choices[position].options(draft):
            if option is not None:
                for decided, more in self._drafts(position + 1, option):
                    yield decided, {**genes, **more}

    def describe(self) -> dict[str, object]:
        """Return everything that decides the meaning of genes, as plain data; a resumed run needs the same."""
        return {name: value for choice in self.choices for name, value in choice.describe().items()}

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]


# Regions of a space: designs that differ in the fold only, and use the same number of nodes. They are counted before
# any is made, so a search can rule them all out at once. The parts of a region fix the number of nodes along each axis.


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
        for layout in self._folds.layouts(self.draft, self.nodes):
            yield replace(self, size=layout.count, layout=layout)

    def candidates(self) -> Iterator[Candidate]:
        """Yield all designs, always in the same order."""
        if self.layout is None:
            for part in self.parts():
                yield from part.candidates()
            return
        for folded, genes in self._folds.of_layout(self.draft, self.layout):
            yield Candidate({**self.genes, **genes}, folded.params, folded.design())


def regions_of(space: Space) -> Iterator[Region] | None:
    """Yield regions that partition a space; None if a later choice depends on the fold."""
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


MOST_BYTES = 256 << 20  # of packed programs kept for sending; workers compile the rest themselves


def parameters_of(space: Space) -> ParameterChoice | None:
    """Return the choice of parameters of a space, if any."""
    return next((choice for choice in space.choices if isinstance(choice, ParameterChoice)), None)


def meanings(space: Space) -> list[Meaning]:
    """Return the programs found in this process since the last call."""
    choice = parameters_of(space)
    return [] if choice is None else choice.meanings()


def learn(space: Space, told: Iterable[Meaning]) -> None:
    """Take over programs found by other processes."""
    choice = parameters_of(space)
    if choice is not None:
        choice.learn(told)


class SharedPrograms:
    """The programs that this process has compiled, and those that each worker has.

    Args:
        space: the space of this process, whose programs are sent to the workers.
    """

    def __init__(self, space: Space) -> None:
        self._space, self._choice = space, parameters_of(space)
        self._meanings: dict[Positions, Meaning] = {}
        self._bytes = 0
        self._sent: dict[object, set[Positions]] = defaultdict(set)

    def needed(self, worker: object, designs: Iterable[Genes]) -> list[Meaning]:
        """Return the programs of designs that a worker has not been sent yet."""
        if self._choice is None:
            return []
        for meaning in meanings(self._space):
            if self._bytes + meaning.program.size <= MOST_BYTES:
                self._meanings[meaning.wanted] = meaning
                self._bytes += meaning.program.size
        found, sent = [], self._sent[worker]
        for genes in designs:
            wanted = self._choice.wanted(genes)
            if wanted in self._meanings and wanted not in sent:
                sent.add(wanted)
                found.append(self._meanings[wanted])
        return found

    def forget(self, worker: object) -> None:
        """Note that another process has taken a worker's place."""
        self._sent.pop(worker, None)
