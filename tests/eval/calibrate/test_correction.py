"""What measurements of a run make of its predictions: laws, on designs whose true times are known."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.eval.calibrate.correction import Correction, Pair, uncorrected
from allo_dse.eval.calibrate.robust_fit import FEWEST_TO_JUDGE

RANGE = {"percent": 9.0, "measurements": 62}


def predicted(latency_us: float, dram: float) -> dict[str, Any]:
    bound = {"compute": 1 - dram, "DRAM": dram}
    return {
        "latency_us": latency_us, "latency_cycles": round(1000 * latency_us), "throughput_gops": 5e4 / latency_us,
        "pe_count": 16, "bound": bound, "latency_range": RANGE,
    }  # fmt: skip


def pair(latency_us: float, dram: float, truth: float) -> Pair:
    found = Pair.of(predicted(latency_us, dram), {"latency_us": truth})
    assert found is not None
    return found


designs = st.lists(st.tuples(st.floats(10, 1e5), st.floats(0, 1)), min_size=1, max_size=30)


def test_nothing_measured_changes_nothing() -> None:
    metrics = predicted(100.0, 0.3)
    assert Correction.of([]).applied(metrics) == metrics
    assert Correction.of([]).words == ""
    assert Correction.of([]).to_dict() is None


@given(designs, st.floats(-0.5, 0.5))
def test_what_is_off_by_one_factor_is_corrected_by_it(found: Any, by: float) -> None:
    correction = Correction.of(pair(us, dram, us * math.exp(by)) for us, dram in found)
    for us, dram in found:
        assert correction.factor(predicted(us, dram)) == pytest.approx(math.exp(by), rel=0.03)


def test_a_resource_that_is_slower_than_predicted_is_told_from_the_others() -> None:
    shares = [n / 10 for n in range(11)]
    pairs = [pair(100 + n, dram, (100 + n) * math.exp(0.1 + 0.4 * dram)) for n, dram in enumerate(shares)]
    correction = Correction.of(pairs)
    assert correction.errors["predicted"][0] > 0.25
    assert correction.errors["corrected"][1] < 0.02
    assert correction.factor(predicted(500.0, 1.0)) == pytest.approx(math.exp(0.5), rel=0.02)
    assert correction.factor(predicted(500.0, 0.0)) == pytest.approx(math.exp(0.1), rel=0.02)


def test_the_order_of_designs_changes_where_what_they_are_bound_by_is_not_as_fast_as_predicted() -> None:
    pairs = [pair(100 + n, n / 10, (100 + n) * math.exp(0.8 * n / 10)) for n in range(10)]
    one, other = (Correction.of(pairs).applied(predicted(us, dram)) for us, dram in ((100, 0.9), (120, 0.1)))
    assert one["latency_us"] > other["latency_us"]


def test_one_wrong_measurement_of_many_counts_little() -> None:
    pairs = [pair(100 + n, n / 20, 1.2 * (100 + n)) for n in range(20)]
    wrong = Correction.of([*pairs[:10], pair(50.0, 0.5, 500.0), *pairs[10:]])
    assert wrong.factor(predicted(100.0, 0.5)) == pytest.approx(1.2, rel=0.02)


@given(designs, st.randoms(use_true_random=False))
def test_the_order_of_measurements_changes_nothing(found: Any, random: Any) -> None:
    pairs = [pair(us, dram, us * (1 + dram)) for us, dram in found[:8]]
    shuffled = random.sample(pairs, len(pairs))
    assert Correction.of(pairs).weights == Correction.of(shuffled).weights


@given(designs, st.floats(10, 1e5), st.floats(0, 1))
def test_what_the_evaluator_said_can_be_had_again_and_correcting_twice_is_correcting_once(
    found: Any, us: float, dram: float
) -> None:
    correction = Correction.of(pair(a, b, a * 1.3) for a, b in found)
    metrics = predicted(us, dram)
    once = correction.applied(metrics)
    assert uncorrected(once) == metrics
    assert correction.applied(once) == once
    assert once["latency_us"] * once["throughput_gops"] == pytest.approx(5e4)
    judged = correction.used >= FEWEST_TO_JUDGE
    assert once["latency_range"].get("of") == ("this run" if judged else None)


@pytest.mark.parametrize("count", [0, 1, 7, 16, 17, 18, 100, 1000])
def test_it_learns_from_each_of_the_first_measurements_and_then_in_steps(count: int) -> None:
    used = Correction.of([pair(100.0, 0.5, 110.0)] * count).used
    assert used <= count < used + max(1, used // 8)
    assert used == count or count > 16


def test_what_is_not_yet_learned_from_says_when_to_learn_again() -> None:
    pairs = [pair(100 + n, 0.5, 120.0 + n) for n in range(120)]
    times = 0
    for count in range(len(pairs)):
        before, after = Correction.of(pairs[:count]), Correction.of(pairs[: count + 1])
        assert (after.used != before.used) == (before.unused + 1 >= before.step)
        times += after.used != before.used
    assert times < len(pairs) / 3


def test_each_design_is_judged_by_the_others() -> None:
    pairs = [pair(100.0 + n, 0.5, 200.0 + n) for n in range(6)]
    odd = [*pairs, pair(100.0, 0.5, 50.0)]
    assert Correction.of(odd).corrected_us[-1] == pytest.approx(Correction.of(pairs).factor(odd[-1].predicted) * 100.0)


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (None, {"latency_us": 3.0}),
        (predicted(3.0, 0.5), None),
        ({"latency_us": 3.0}, {"latency_us": 3.0}),
        (predicted(3.0, 0.5), predicted(3.0, 0.5)),
        (predicted(3.0, 0.5), {"pe_count": 3}),
        (predicted(3.0, 0.5), {"latency_us": 0.0}),
        (predicted(3.0, 0.5), {"latency_us": 1e-300}),
        (predicted(3.0, 0.5), {"latency_us": math.inf}),
        (predicted(3.0, 0.5), {"latency_us": "3"}),
    ],
)
def test_only_a_prediction_and_a_measurement_are_a_pair(below: Any, above: Any) -> None:
    assert Pair.of(below, above) is None
