"""Which metric an objective is, and what its loss cannot be below."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.eval.bounding import Bounds
from allo_dse.tune.search.least import LeastLosses, metric_of
from allo_dse.tune.search.objectives import maximize, minimize, require

DESIGN: Any = SimpleNamespace()


class Fixed:
    """Says the same of every design."""

    levels = 1
    metrics = frozenset({"latency_us", "pe_count", "throughput_gops"})

    def __call__(self, design: Any, level: int) -> Bounds:
        return {"latency_us": (3.0, math.inf), "pe_count": (4, 4), "throughput_gops": (0.0, 70.0)}


@pytest.mark.parametrize(
    ("measure", "metric"),
    [
        (minimize("latency_us").measure, "latency_us"),
        (lambda m: m.pe_count, "pe_count"),
        (lambda m: m["pe_count"], "pe_count"),
        (lambda m: 2 * m.pe_count, None),
        (lambda m: m.pe_count or m.latency_us, None),
        (lambda m: m.pe_count if m.latency_us > 3 else m.latency_us, None),
        (lambda m: m.pe_count if m.latency_us == 3 else m.latency_us, None),
        (lambda m: m.pe_count if len(m) > 3 else m.latency_us, None),
        (lambda m: m.pe_count if "latency_us" in m else m.latency_us, None),
        (lambda m: m.pe_count if hash(m.pe_count) > 3 else m.latency_us, None),
        (lambda m: float(m.pe_count), None),
        (lambda m: 3, None),
    ],
)
def test_an_objective_is_a_metric_only_where_it_computes_nothing(measure: Any, metric: str | None) -> None:
    assert metric_of(measure) == metric


def test_losses_have_the_sign_of_the_objective() -> None:
    objectives = [minimize("latency_us"), maximize("throughput_gops"), minimize(lambda m: m.pe_count**2, name="area")]
    least = LeastLosses(objectives, (), Fixed())
    assert least(DESIGN, 0) == (3.0, -70.0, -math.inf)
    assert least.unbounded == ["area"]
    assert LeastLosses(objectives)(DESIGN, 0) == (-math.inf,) * 3
    assert LeastLosses(objectives).unbounded == ["latency_us", "throughput_gops", "area"]


@pytest.mark.parametrize(
    ("constraint", "possible"),
    [
        (require("latency_us", at_most=2.9), False),
        (require("latency_us", at_most=3), True),
        (require("latency_us", at_least=1e9), True),
        (require("throughput_gops", at_least=70.1), False),
        (require("throughput_gops", at_least=70), True),
        (require("dram_bytes", at_most=1), True),
        (require(lambda m: m.latency_us < 1), True),
    ],
)
def test_what_exceeds_a_bound_for_certain_is_no_design(constraint: Any, possible: bool) -> None:
    assert (LeastLosses([minimize("latency_us")], [constraint], Fixed())(DESIGN, 0) is not None) is possible


def test_what_cannot_be_bounded_may_be_anything() -> None:
    class Unknown(Fixed):
        def __call__(self, design: Any, level: int) -> Bounds:
            raise SimulationError("it is not known how many cycles the vendor kernel takes")

    assert LeastLosses([minimize("latency_us")], (), Unknown())(DESIGN, 0) == (-math.inf,)
