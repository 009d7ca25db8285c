"""Choice of the clock that an FPGA design is scheduled for."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.space.choice import Ask, Question, QuestionChoice
from allo_dse.space.design import Draft


class clock(QuestionChoice):
    """The clock of a design, one of those given. Gene: `clock`, the position of a frequency.

    A faster clock gives operators more stages, so a design takes more cycles of less time.

    Args:
        mhz: frequencies, ascending.

    Raises:
        StudyError: for frequencies that are not ascending and positive.
    """

    writes = frozenset({"device"})

    def __init__(self, mhz: Sequence[float]) -> None:
        self._mhz = tuple(map(float, mhz))
        if not self._mhz or self._mhz[0] <= 0 or sorted(set(self._mhz)) != list(self._mhz):
            raise StudyError(f"clock({list(mhz)}): needs ascending frequencies in MHz")

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        if draft.device.family != "fpga":
            raise StudyError(f"clock: {draft.device.name} is no FPGA", hint="the clock of an NPU is its board's")
        position = int(ask(Question.position("clock", self._mhz, ordered=True)))
        return replace(draft, device=draft.device.with_options(clock_mhz=self._mhz[position]))

    def describe(self) -> dict[str, object]:
        return {"clock_mhz": list(self._mhz)}
