"""Which metric an objective is, and what its loss cannot be below."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.eval.evaluator import Bounds
from allo_dse.tune.search.lower_bounds import LowerBounds, metric_of
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
        ("latency_us", "latency_us"),
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
    assert metric_of(minimize(measure, name="x")) == metric


def test_losses_have_the_sign_of_the_objective() -> None:
    objectives = [minimize("latency_us"), maximize("throughput_gops"), minimize(lambda m: m.pe_count**2, name="area")]
    least = LowerBounds(objectives, (), Fixed())
    assert least(DESIGN, 0) == (3.0, -70.0, -math.inf)
    assert least.unbounded == ["area"]
    assert LowerBounds(objectives)(DESIGN, 0) == (-math.inf,) * 3
    assert LowerBounds(objectives).unbounded == ["latency_us", "throughput_gops", "area"]


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
    assert (LowerBounds([minimize("latency_us")], [constraint], Fixed())(DESIGN, 0) is not None) is possible


def test_what_cannot_be_bounded_may_be_anything() -> None:
    class Unknown(Fixed):
        def __call__(self, design: Any, level: int) -> Bounds:
            raise SimulationError("it is not known how many cycles the vendor kernel takes")

    assert LowerBounds([minimize("latency_us")], (), Unknown())(DESIGN, 0) == (-math.inf,)


def _falls_back(m: Any) -> Any:
    try:
        return m.latency_us * m.pe_count
    except Exception:
        return m.latency_us


def _documented(m: Any) -> Any:
    """The number of cores."""
    return m.pe_count


@pytest.mark.parametrize(
    ("measure", "metric"),
    [
        (_documented, "pe_count"),
        (_falls_back, None),
        (partial(_documented), None),
        (lambda m: getattr(m, "pe_count", 1), None),
        (lambda m: m.pe_count if hasattr(m, "pe_count") else m.latency_us, None),
        (lambda m: m.get("pe_count"), None),
        (lambda m, other="latency_us": m[other], None),
        (lambda m: m.values, None),
        (lambda m: DESIGN.pe_count, None),
        (lambda m: m.pe_count.latency_us, None),
        (lambda m: -m.pe_count, None),
        (lambda m: (DESIGN.seen.append(m), m.pe_count)[1], None),
    ],
)
def test_no_trick_of_a_function_is_taken_for_a_metric(measure: Any, metric: str | None) -> None:
    assert metric_of(minimize(measure, name="x")) == metric


def test_a_function_is_not_executed_to_see_what_it_is() -> None:
    def run(m: Any) -> Any:
        raise KeyboardInterrupt

    assert metric_of(minimize(run)) is None


@pytest.mark.parametrize(
    ("metrics", "contradicts"),
    [
        ({"latency_us": 3.0, "pe_count": 4, "throughput_gops": 70.0}, ""),
        ({"latency_us": 2.9, "pe_count": 4, "throughput_gops": 1.0}, "latency_us is 2.9"),
        ({"latency_us": 4.0, "pe_count": 5, "throughput_gops": 1.0}, "pe_count is 5"),
        ({"latency": 4.0, "pe_count": 4}, "no metric 'latency_us'"),
        ({"latency_us": math.nan}, "latency_us is nan"),
    ],
)
def test_a_measurement_outside_its_bounds_contradicts_them(metrics: Any, contradicts: str) -> None:
    found = LowerBounds([minimize("latency_us")], (), Fixed()).contradiction(DESIGN, metrics)
    assert found.startswith(contradicts)
    assert bool(found) is bool(contradicts)
