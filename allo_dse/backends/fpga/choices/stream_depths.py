"""Choice of the time that FIFOs of an FPGA design may cost, which decides their depths."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.simulator.depths.front import LOSSES
from allo_dse.space.choice import Ask, Question, QuestionChoice
from allo_dse.space.design import Draft

SLOWDOWNS = (0.0, *LOSSES)


class StreamDepths(QuestionChoice):
    """Depths on a design's own front of cycles against FIFO memory. Gene: `fifo_slowdown`, the position of a share.

    The evaluator finds the front, once for all shares, and takes the point of least memory among those that are slower
    than the fastest by that share at most. So depths need no genes of their own, and every one is a good choice.

    Args:
        slowdowns: shares of a design's cycles, ascending (0: no cycle is lost, 1: twice the cycles).

    Raises:
        StudyError: for shares that are not ascending, or below 0.
    """

    writes = frozenset({"slowdown"})

    def __init__(self, slowdowns: Sequence[float] = SLOWDOWNS) -> None:
        self._slowdowns = tuple(map(float, slowdowns))
        if not self._slowdowns or self._slowdowns[0] < 0 or sorted(set(self._slowdowns)) != list(self._slowdowns):
            raise StudyError(f"StreamDepths({list(slowdowns)}): needs ascending shares, 0 at least")

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        if draft.device.family != "fpga":
            raise StudyError(
                f"StreamDepths: {draft.device.name} is no FPGA", hint="output_depths= has the depths of object FIFOs"
            )
        position = int(ask(Question.position("fifo_slowdown", self._slowdowns, ordered=True)))
        return replace(draft, slowdown=self._slowdowns[position])

    def describe(self) -> dict[str, object]:
        return {"fifo_slowdowns": list(self._slowdowns)}
