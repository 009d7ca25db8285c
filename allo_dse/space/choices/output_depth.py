"""How many buffers each output port has."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.records import replace

from ..choice import Ask, Question, QuestionChoice
from ..draft import Draft


class OutputDepth(QuestionChoice):
    """One of some object FIFO depths for all output ports. Gene: `output_depth`, the position among them.

    Args:
        depths: in tiles (1: single buffer, 2: double buffer).
    """

    writes = frozenset({"buffering.output_depth"})

    def __init__(self, depths: Sequence[int] = (1, 2)) -> None:
        self._depths = tuple(depths)

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        depth = self._depths[int(ask(Question.position("output_depth", len(self._depths))))]
        if depth == draft.buffering.output_depth:
            return draft
        return replace(draft, buffering=replace(draft.buffering, output_depth=depth))

    def describe(self) -> dict[str, object]:
        return {"output_depths": list(self._depths)}
