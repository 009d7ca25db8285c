"""Overlap of independent parts of kernels: one after the other, or concurrent tasks."""

from __future__ import annotations

from allo_dse.common.records import replace

from ..choice import Ask, Question, QuestionChoice
from ..design import Draft

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

    def describe(self) -> dict[str, object]:
        return {"parts": list(PARTS)}
