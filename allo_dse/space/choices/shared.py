"""Choices that several kinds of devices offer: overlap of kernels, and depths of object FIFOs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.mapper.program import Program

from ..choice import Ask, Question, QuestionChoice
from ..design import Design, Draft
from ..genes import Genes

PARTS = ("in turn", "at once")


class Overlap(QuestionChoice):
    """Keeps kernels whole, or turns their independent parts into kernels.

    Gene: `parts`, for programs where that makes a difference. Programs that customize kernels by name stay whole, as do
    those that are timed on inputs.
    """

    reads = frozenset({"program"})
    writes = frozenset({"program"})

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        whole = draft.compiled
        if whole.schedule or whole.runs or len(whole.split.kernels) == len(whole.kernels):
            return draft
        at_once = ask(Question.word("parts", PARTS, PARTS)) == "at once"
        return replace(draft, program=whole.split) if at_once else draft

    def encode(self, draft: Draft, design: Design) -> Genes:
        for option, genes in self.options(draft):
            if option is not None and option.compiled.apart == design.program.apart:
                return genes
        raise StudyError("the design's kernels are not those that the study chooses from")

    def describe(self) -> dict[str, object]:
        return {"parts": list(PARTS)}


class OfSome(QuestionChoice):
    """A choice for some programs; designs of others are the same in all else.

    Args:
        choice: what to choose.
        applies: returns true for programs that have the choice.
    """

    def __init__(self, choice: QuestionChoice, applies: Callable[[Program], bool]) -> None:
        self.reads, self.writes = choice.reads | {"program"}, choice.writes
        self._choice = choice
        self._applies = applies

    @property
    def scope(self) -> str:
        """As of the choice."""
        return str(getattr(self._choice, "scope", ""))

    def decide(self, draft: Draft, ask: Ask) -> Draft | None:
        return self._choice.decide(draft, ask) if self._applies(draft.compiled) else draft

    def count(self, draft: Draft, limit: int) -> int:
        return self._choice.count(draft, limit) if self._applies(draft.compiled) else 1

    def encode(self, draft: Draft, design: Design) -> Genes:
        return self._choice.encode(draft, design) if self._applies(draft.compiled) else {}

    def describe(self) -> dict[str, object]:
        return self._choice.describe()


class OutputDepth(QuestionChoice):
    """One of some object FIFO depths for all output ports. Gene: `output_depth`, the position among them.

    Args:
        depths: in tiles (1: single buffer, 2: double buffer).
    """

    writes = frozenset({"buffering.output_depth"})

    def __init__(self, depths: Sequence[int] = (1, 2)) -> None:
        self._depths = tuple(depths)

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        depth = self._depths[int(ask(Question.position("output_depth", self._depths)))]
        if depth == draft.buffering.output_depth:
            return draft
        return replace(draft, buffering=replace(draft.buffering, output_depth=depth))

    def describe(self) -> dict[str, object]:
        return {"output_depths": list(self._depths)}
