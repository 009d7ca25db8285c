"""Recorded runs of designs, for timelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..eval.simulator.explain import Explanation
from ..eval.simulator.timeline import Timeline

MAX_SECONDS = 20.0


@dataclass(frozen=True)
class Recorded:
    """What happened in a run.

    Attributes:
        explanation: None when only the beginning of the run was kept.
        words: what was run.
        ticks_per_cycle: units of the timeline in a clock cycle.
    """

    timeline: Timeline
    explanation: Explanation | None
    words: str
    ticks_per_cycle: int = 1


def record(design: Any) -> Recorded:
    """Run a design and keep what happened: of an NPU design the first period, of another one the whole program.

    Raises:
        AlloDseError: if it cannot be simulated.
    """
    if design.device.family == "npu":
        from ..eval.npu_recording import record_npu

        found = record_npu(design, periods=1)
        words = f"The first of {found.of:,} periods of each core's schedule."
        return _recorded(found.result, words, found.ticks_per_cycle)
    from ..api import simulate

    return _recorded(simulate(design, record=True, seconds=MAX_SECONDS), "The whole program, on zeros.", 1)


def _recorded(result: Any, words: str, ticks_per_cycle: int) -> Recorded:
    timeline = result.timeline
    return Recorded(timeline, result.explain() if timeline.events.is_complete else None, words, ticks_per_cycle)
