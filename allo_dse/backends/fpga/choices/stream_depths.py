"""Choices of one number for a whole FPGA design: its clock, and the time that its FIFOs may cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.space.choice import Ask, Question, QuestionChoice
from allo_dse.space.design import Draft

SLOWDOWNS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class _Number(QuestionChoice):
    """One of some ascending numbers; its gene is the position among them.

    Raises:
        StudyError: for numbers that are not ascending, or that there cannot be.
    """

    gene: ClassVar[str]
    described: ClassVar[str]
    needed: ClassVar[str]
    elsewhere: ClassVar[str]

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = tuple(map(float, numbers))
        if not self._numbers or self._numbers[0] < 0 or sorted(set(self._numbers)) != list(self._numbers):
            raise StudyError(f"{type(self).__name__}({list(numbers)}): needs ascending {self.needed}")

    def number(self, draft: Draft, ask: Ask) -> float:
        if draft.device.family != "fpga":
            raise StudyError(f"{type(self).__name__}: {draft.device.name} is no FPGA", hint=self.elsewhere)
        return self._numbers[int(ask(Question.position(self.gene, self._numbers, ordered=True)))]

    def describe(self) -> dict[str, object]:
        return {self.described: list(self._numbers)}


class StreamDepths(_Number):
    """Depths on a design's own front of cycles against FIFO memory. Gene: `fifo_slowdown`, the position of a share.

    The evaluator finds the front, once for all shares, and takes the point of least memory among those that are slower
    than the fastest by that share at most. So depths need no genes of their own, and every one is a good choice.

    Args:
        slowdowns: shares of a design's cycles, ascending (0: no cycle is lost, 1: twice the cycles).

    Raises:
        StudyError: for shares that are not ascending, or below 0.
    """

    writes = frozenset({"slowdown"})
    gene, described, needed = "fifo_slowdown", "fifo_slowdowns", "shares, 0 at least"
    elsewhere = "output_depths= has the depths of object FIFOs"

    def __init__(self, slowdowns: Sequence[float] = SLOWDOWNS) -> None:
        super().__init__(slowdowns)

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        return replace(draft, slowdown=self.number(draft, ask))


class clock(_Number):
    """The clock of a design, one of those given. Gene: `clock`, the position of a frequency.

    A faster clock gives operators more stages, so a design takes more cycles of less time.

    Args:
        mhz: frequencies, ascending.

    Raises:
        StudyError: for frequencies that are not ascending and positive.
    """

    writes = frozenset({"device"})
    gene, described, needed = "clock", "clock_mhz", "frequencies in MHz"
    elsewhere = "the clock of an NPU is its board's"

    def __init__(self, mhz: Sequence[float]) -> None:
        super().__init__(mhz)

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        return replace(draft, device=draft.device.with_options(clock_mhz=self.number(draft, ask)))
