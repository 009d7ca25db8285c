from typing import Any, cast

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.search.objectives import MetricError, maximize, minimize, require

METRICS = Metrics(latency_us=12.5, pe_count=4, dram_bytes=96e6)


def test_objectives_by_name_and_by_function() -> None:
    assert minimize("latency_us").value(METRICS) == 12.5
    cores = maximize(lambda m: m.pe_count * 2, name="cores")
    assert (cores.name, cores.value(METRICS), cores.sign) == ("cores", 8.0, -1.0)


def test_a_function_names_itself_where_it_can() -> None:
    assert minimize(lambda m: m.latency_us / m.pe_count).name == "m.latency_us / m.pe_count"
    pair = [require(lambda m: m.dram_bytes < 64e6), require(lambda m: m.pe_count > 2)]
    assert [c.name for c in pair] == ["m.dram_bytes < 64e6", "m.pe_count > 2"]


def test_what_cannot_be_computed_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="no metric 'energy'"):
        minimize(lambda m: m.energy, name="energy").value(METRICS)
    with pytest.raises(MetricError, match="is nan"):
        minimize("x").value(Metrics(x=float("nan")))
    with pytest.raises(MetricError, match="is inf"):
        minimize("x").value(Metrics(x=float("inf")))
    for bound in (require("x", at_most=5), require("x", at_least=5)):
        with pytest.raises(MetricError, match="is not a number"):
            bound.violation(Metrics(x=float("nan")))


def test_constraints_say_how_far_they_are_violated() -> None:
    assert require(lambda m: m.dram_bytes < 64e6, name="traffic").violation(METRICS) == 1.0
    assert require(lambda m: m.pe_count == 4, name="cores").violation(METRICS) == 0.0
    assert require("dram_bytes", at_most=64e6).violation(METRICS) == pytest.approx(0.5)
    assert require("pe_count", at_least=8).violation(METRICS) == pytest.approx(0.5)
    assert require("pe_count", at_least=2, at_most=4).violation(METRICS) == 0.0
    assert require("pe_count", at_least=1, at_most=2).violation(METRICS) == pytest.approx(1.0)
    assert require("pe_count", at_least=8, at_most=9).violation(METRICS) == pytest.approx(0.5)
    assert require("pe_count", at_least=2, at_most=4).name == "pe_count <= 4 and >= 2"


def test_wrong_declarations_are_explained() -> None:
    with pytest.raises(StudyError, match="needs at_most= or at_least="):
        require("pe_count")
    with pytest.raises(StudyError, match="expected a metric's name"):
        minimize(cast(Any, 3))
    with pytest.raises(StudyError, match="a function alone"):
        require(lambda m: True, at_most=3)
