"""What depends on data is timed by runs on given inputs, and said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics
from allo_dse.eval.execute.observation import observed
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.tune.results.explain import explain

from ...support.written_programs import write_program
from .cost import programs

SIZE = 24


COUNTING = """
STEPS = [2, 4, 5, 7]

@df.region()
def build(X: int32[4], Y: int32[64]):
    pipe: Stream[int32, 4]

    @df.kernel(mapping=[1], args=[X])
    def feed(x: int32[4]):
        for s in range(4):
            pipe.put(x[s])

    @df.kernel(mapping=[1], args=[X, Y])
    def count(x: int32[4], y: int32[64]):
        own: int32[4] = 0
        half: int32 = 1
        for s in range(4):
            for i in range(half):
                y[i] += x[s]
            other: int32 = pipe.get()
            {step}
"""


def timed(region: Any, *sets: dict[str, np.ndarray[Any, Any]]) -> Metrics:
    program = dse.load_program(region)
    return evaluated(observed(program, sets) if sets else program)


def evaluated(program: dse.Program) -> Metrics:
    device = dse.Device.load("u280")
    return dse.FpgaSimulator().evaluate(dse.Design(program, unfolded(program), dse.Buffering(), device))


def kept(by_data: bool) -> Any:
    """Every third element is handed on, by a condition on the loop's variable or on data."""

    @df.region()
    def top(A: int32[SIZE], B: int32[SIZE // 3]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[A])
        def take(a: int32[SIZE]):
            for i in range(SIZE):
                v: int32 = a[i]
                with allo.meta_if(by_data):
                    if v > 0:
                        pipe.put(v)
                with allo.meta_else():
                    if i % 3 == 2:
                        pipe.put(v)

        @df.kernel(mapping=[1], args=[B])
        def give(b: int32[SIZE // 3]):
            for i in range(SIZE // 3):
                b[i] = pipe.get()

    return top


def rows(by_data: bool) -> Any:
    """Sums of the elements on and above the diagonal, where each row's length is known or is data."""

    @df.region()
    def top(X: int32[SIZE], A: int32[SIZE, SIZE], B: int32[SIZE]):
        @df.kernel(mapping=[1], args=[X, A, B])
        def k(x: int32[SIZE], a: int32[SIZE, SIZE], b: int32[SIZE]):
            for i in range(SIZE):
                with allo.meta_if(by_data):
                    for j in range(x[i], SIZE):
                        b[j] += a[i, j]
                with allo.meta_else():
                    for j in range(i, SIZE):
                        b[j] += a[i, j]

    return top


def halves() -> Any:
    """Tasks of one class that decide differently, with two conditions inside each other in unrolled copies."""

    @df.region()
    def top(A: int32[2, SIZE], B: int32[2]):
        pipe: Stream[int32, 64][2]

        @df.kernel(mapping=[2], args=[A])
        def take(a: int32[2, SIZE]):
            p = df.get_pid()
            for i in range(SIZE // 4):
                for u in range(4, unroll=True):  # type: ignore[call-overload]
                    if a[p, 4 * i + u] > 0:  # noqa: SIM102 (two conditions)
                        if a[p, 4 * i + u] > 1:
                            pipe[p].put(a[p, 4 * i + u])
            pipe[p].put(0)

        @df.kernel(mapping=[2], args=[B])
        def give(b: int32[2]):
            p = df.get_pid()
            total: int32 = 0
            v: int32 = pipe[p].get()
            while v > 0:
                total += v
                v = pipe[p].get()
            b[p] = total

    return top


def test_a_condition_on_data_takes_the_time_of_one_that_is_known() -> None:
    a = np.where(np.arange(SIZE) % 3 == 2, 5, -1).astype(np.int32)
    assert timed(kept(True), {"A": a}).latency_cycles == timed(kept(False)).latency_cycles


def test_rounds_that_are_data_take_the_time_of_known_ones() -> None:
    x = np.arange(SIZE, dtype=np.int32)
    known, data = timed(rows(False)), timed(rows(True), {"X": x}, {"X": np.full(SIZE, SIZE - 1, np.int32)})
    first, second = data.timed_on["latency_cycles"]
    assert 0 <= first - known.latency_cycles <= 3 * SIZE  # a load of each row's length
    assert second < first == data.latency_cycles


def test_tasks_of_one_class_decide_for_themselves() -> None:
    a = np.zeros((2, SIZE), np.int32)
    a[0] = 2
    a[1, ::2] = 1
    program = observed(dse.load_program(halves()), [{"A": a}])
    (run,) = program.runs
    (loop, *_), (other, *_) = (next(iter(run.of_class("give", "all")[pid,].values())) for pid in (0, 1))
    assert loop.tolist() == [SIZE + 1, 0]  # the last round ends at the condition
    assert other.tolist() == [1, 0]
    # Operations are not counted where data decides on them.
    assert "throughput_gops" not in dict(timed(halves(), {"A": a}))


def test_loops_under_a_condition_on_data_take_the_time_of_the_side_that_was_taken() -> None:
    @df.region()
    def top(A: int32[SIZE], B: int32[SIZE]):
        @df.kernel(mapping=[1], args=[A, B])
        def either(a: int32[SIZE], b: int32[SIZE]):
            if a[0] > 0:
                for i in range(SIZE):
                    b[i] = a[i]
            else:
                for _ in range(20):
                    for j in range(1, SIZE):
                        b[j] = b[j - 1] * a[j]

    ones = np.ones(SIZE, np.int32)
    assert 5 * timed(top, {"A": ones}).latency_cycles < timed(top, {"A": -ones}).latency_cycles


def test_a_program_whose_control_is_known_needs_no_run() -> None:
    program = dse.load_program(kept(False))
    assert observed(program, [{"A": np.zeros(SIZE, np.int32)}]) is program


def test_a_study_times_designs_on_its_inputs_and_says_so(tmp_path: Path) -> None:
    some = np.where(np.arange(programs.N) % 2, 3, -1).astype(np.int32)
    study = dse.Study(
        "chosen", program=lambda N: programs.chosen(), params={"N": dse.choices([1, 2])}, device="u280",
        inputs=lambda p: [{"X": some}, {"X": -some}], schedules=[dse.pipeline("pick:i", [1, 2])],
        objectives=[dse.minimize("latency_cycles")], trials=4,
    )  # fmt: skip
    result = study.run(run_dir=tmp_path / "run", progress="quiet", verify=False)
    best = result.best("latency_cycles")
    assert best.metrics["timed_on"]["sets"] == 2
    assert best.metrics["latency_cycles"] == max(best.metrics["timed_on"]["latency_cycles"])
    assert "latency of the study's inputs (the slowest of 2 sets" in explain(best.design, best.metrics)


def test_inputs_that_a_program_does_not_have_are_refused() -> None:
    with pytest.raises(StudyError, match="has no tensor 'Z'") as error:
        observed(dse.load_program(programs.chosen()), [{"Z": 1}])
    assert "X, Y" in str(error.value.hint)


COUNTS = {
    "a counter": "half = half * 2",
    "a table": "half = STEPS[s]",
    "a local array": "own[s] = half + 1\n            half = own[s]",
    "a tensor": "half = x[s]",
    "a local array of data": "own[0] = x[0]\n            half = own[0]",
    "a condition on data": "if x[s] > 0:\n                half = half * 2",
    "a stream": "half = other",
    "a loop on data": "for i in range(x[s]):\n                half = half + 1",
    "an index from data": "half = STEPS[x[s]]",
}


@pytest.mark.parametrize("what", COUNTS)
def test_control_without_data_needs_no_inputs(what: str, tmp_path: Path) -> None:
    program = dse.load_program(write_program(tmp_path / "counts.py", COUNTING.format(step=COUNTS[what])))
    alone = observed(program, None)
    if what not in ("a counter", "a table", "a local array"):
        assert alone is program
        return
    given = observed(program, [{"X": np.ones(4, np.int32)}])
    assert [one.digest for one in alone.runs] == [one.digest for one in given.runs]
    found, expected = evaluated(alone), evaluated(given)
    assert "timed_on" not in found
    assert "timed_on" in expected
    assert found["latency_cycles"] == expected["latency_cycles"]


def test_a_vendor_kernel_may_write_what_control_reads(tmp_path: Path) -> None:
    text = """
from allo.backend.aie import ExternalModule
import allo_dse.lang
copied = ExternalModule(top="copied", impl_path="copied.cc", input_idx=[0], output_idx=[1])
allo_dse.lang.define_external("copied", lambda x: x, cycles=lambda x, y: 4)

@df.region()
def build(X: int32[4], Y: int32[64]):
    @df.kernel(mapping=[1], args=[X, Y])
    def count(x: int32[4], y: int32[64]):
        own: int32[4] = 0
        copied(x, own)
        for i in range(own[0]):
            y[i] += 1
"""
    program = dse.load_program(write_program(tmp_path / "vendor.py", text))
    assert observed(program, None) is program
