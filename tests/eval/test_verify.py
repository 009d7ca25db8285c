"""Verification finds what is wrong, and accepts what is right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.records import Array, replace
from allo_dse.device.device import Device
from allo_dse.eval import verify
from allo_dse.eval.equivalence.data_values import TooMuchWork
from allo_dse.eval.execute import run
from allo_dse.eval.golden_data import golden_data, remembered
from allo_dse.eval.tolerances import tolerances_of
from allo_dse.eval.verify import prove_design, verify_and_prove, verify_design
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import MeshFold, unfolded
from allo_dse.mapper.program import load_program
from allo_dse.mapper.violation import Buffering
from allo_dse.simulator.engine import engine
from allo_dse.space.design import Design
from allo_dse.space.params import Assignment

from ..backends.fpga.cost import programs
from .designs import gemm_fold

install()

from allo.ir.types import bfloat16, int8, int16

from studies.gemm_npu import gemm


def design(dtype: Any = int16, fold: MeshFold | None = None, tasks: int = 8) -> Design:
    size = {"M": 256, "N": 256, "K": 256, "Pm": tasks, "Pn": tasks, "Pk": tasks}
    program = load_program(gemm, **size, TyI=dtype, TyO=dtype)
    return Design(program, fold or gemm_fold(), Buffering(), Device.load("npu1_4col"))


def reduced(params: Any) -> Any:
    return {"M": 4 * params["Pm"], "N": 4 * params["Pn"], "K": 4 * params["Pk"]}


def reduced_alike(params: Any) -> Any:
    return dict.fromkeys("MNK", 4 * params.Pm)


@pytest.mark.parametrize("dtype", [int8, int16, bfloat16])
@pytest.mark.parametrize("fold", [gemm_fold(), gemm_fold(2, 4, 2), gemm_fold(1, 1, 1, order=(2, 1))])
def test_a_right_design_is_confirmed(dtype: Any, fold: MeshFold) -> None:
    result = verify_design(design(dtype, fold), reference=lambda A, B: A @ B, verify_with=reduced)
    assert result.ok, result.message
    exact = "equal to the unfolded program and the reference (32x32, 32x32, 32x32, 512 tasks)"
    assert result.message.partition("; ")[0] == exact
    assert ("; rounding error up to " in result.message) == (dtype is bfloat16)


def test_a_wrong_reference_is_noticed() -> None:
    result = verify_design(design(), reference=lambda A, B: A @ B + 1, verify_with=reduced)
    assert not result.ok
    assert result.message == "C differs from the reference in 1,024 of 1,024 elements"


def test_integers_of_a_reference_that_wrap_are_said() -> None:
    message = verify_design(design(int8), reference=lambda A, B: A.astype(int) @ B, verify_with=reduced).message
    assert "; the reference exceeds the type of C at some elements, which wrap" in message
    message = verify_design(design(int8), reference=lambda A, B: A @ B, verify_with=reduced).message
    assert "exceeds" not in message


def test_wrong_numbers_of_memory_that_was_never_written_name_the_variable() -> None:
    program = load_program(programs.positive)
    made = Design(program, unfolded(program), Buffering(), Device.load("npu1_4col"))
    result = verify_and_prove(made, reference=lambda x: np.maximum(x, 0) + 1)
    assert not result.ok
    assert re.search(r"; Y\[0\] of positive depends on memory .*: `kept` \(.*programs\.py:\d+, read at", result.message)
    assert "depends" not in verify_and_prove(design(), reference=lambda A, B: A @ B + 1, verify_with=reduced).message


def test_integers_wider_than_machine_types_are_verified_on_random_numbers() -> None:
    program = load_program(programs.wide)
    made = Design(program, unfolded(program), Buffering(), Device.load("u280"))
    result = verify_and_prove(made)
    assert result.ok, result.message
    assert any(golden_data(program)["data/X.bin"])


@pytest.mark.parametrize("bits", [5, 12, 80, 100])
def test_a_reference_in_python_integers_wraps_as_the_program(bits: int) -> None:
    """Also on given inputs, of which it gets the numbers and not their memory."""

    def squares(X: Any, more: int = 0) -> Any:
        whole = np.array([int(x) for x in X], object)
        return np.where(whole > 0, whole * whole, whole) + more

    program = load_program(programs.squares, bits=bits)
    made = Design(program, unfolded(program), Buffering(), Device.load("u280"))
    most = 2 ** (bits - 1) - 1
    for inputs in (None, {"X": np.array([most, -most - 1, -3, 5], object if bits > 64 else None)}):
        message = verify_design(made, reference=squares, inputs=inputs).message
        assert message.endswith("the reference exceeds the type of Y at some elements, which wrap"), message
        wrong = verify_design(made, reference=lambda X: squares(X, 1), inputs=inputs).message
        assert wrong == "Y differs from the reference in 4 of 4 elements"
        sets = [inputs] if inputs else []
        assert golden_data(program, squares, sets) == golden_data(program, None, sets)
    known = remembered(squares)
    assert [known(np.array([2**70 + i], object)) for i in range(9)] == [(2**70 + i) ** 2 for i in range(9)]


def test_numbers_that_are_not_finite_are_no_integers() -> None:
    result = verify_design(design(int8), reference=lambda A, B: A.astype(float) @ B * np.nan, verify_with=reduced)
    assert result.message.startswith("C differs from the reference in 1,024 of 1,024 elements")


def test_a_reference_in_floats_wraps_where_it_is_exact() -> None:
    result = verify_design(design(int8), reference=lambda A, B: A.astype(float) @ B, verify_with=reduced)
    assert result.ok, result.message
    result = verify_design(design(int8), reference=lambda A, B: A.astype(float) @ B / 3, verify_with=reduced)
    assert result.message.endswith("elements, which was computed in float64")


def test_fixed_point_numbers_are_as_near_to_exact_ones_as_they_are_rounded() -> None:
    """Sums of 8 products, each rounded down: 9 steps at most, and sums beyond the type wrap."""
    program = load_program(programs.fixed_sums)
    made = Design(program, unfolded(program), Buffering(), Device.load("u280"))
    exact = verify_design(made, reference=lambda A, B: (A.astype(float) @ B) / 256)
    assert exact.ok, exact.message
    assert verify_design(made, reference=lambda A, B: (A.astype(int)[:, :, None] * B >> 8).sum(1)).ok
    other = verify_design(made, reference=lambda A, B: (A.astype(float) @ B) / 256 + 10)
    assert other.message.startswith(
        "C differs from the reference in 16 of 16 elements by more than 9 steps of fixed16_8"
    )
    assert other.message.endswith("; it gets and returns raw integers of fixed-point numbers")
    assert not verify_design(made, reference=lambda A, B: (A.astype(float) @ B) * np.nan).ok


def test_a_test_bench_is_told_numbers_to_the_last_bit() -> None:
    """Also by references in floats, which neither wrap nor round as fixed-point numbers do."""
    program = load_program(programs.fixed_sums)
    assert golden_data(program, lambda A, B: (A.astype(float) @ B) / 256) == golden_data(program)
    program = design(int8).program.with_params(**reduced(design(int8).program.params))
    assert golden_data(program, lambda A, B: 2.0**40 + A.astype(float) @ B) == golden_data(program)


def test_what_is_infinite_allows_nothing_else() -> None:
    def reference(a: Array, b: Array) -> Any:
        c = a @ b
        c[0, 0] = np.inf
        return c

    result = verify_design(design(bfloat16), reference=reference, verify_with=reduced)
    assert result.message.startswith("C differs from the reference in 1 of 1,024 elements, most at [0, 0] by inf")


def test_one_wrong_float_is_noticed() -> None:
    def reference(a: Array, b: Array) -> Any:
        c = a @ b
        c[3, 5] += 0.5 * np.abs(c).max()
        return c

    result = verify_design(design(bfloat16), reference=reference, verify_with=reduced)
    assert result.message.startswith("C differs from the reference in 1 of 1,024 elements, most at [3, 5] by ")


def test_a_folded_program_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run.run_graph

    def broken(vmg: Any, *arrays: Any, **options: Any) -> None:
        real(vmg, *arrays, **options)
        if vmg.node_count == 16:
            arrays[2][0, 0] += 1

    monkeypatch.setattr(verify, "run_graph", broken)
    result = verify_design(design(), verify_with=reduced)
    assert result.message == "C differs from the unfolded program's in 1 of 1,024 elements"


def test_without_a_reference_the_unfolded_program_decides() -> None:
    result = verify_design(design(), verify_with=reduced)
    assert result.ok
    assert result.message.startswith("equal to the unfolded program (")


@dataclass
class Given:
    """A function that has equality and therefore no hash."""

    function: Any

    def __call__(self, *values: Any) -> Any:
        return self.function(*values)


def test_functions_of_a_study_may_be_objects_without_a_hash() -> None:
    study = dse.Study(
        "objects",
        program=gemm,
        params={**dict.fromkeys("MNK", 64), "Pm": 2, "Pn": 2, "Pk": 2, "TyI": bfloat16, "TyO": bfloat16},
        objectives=[dse.minimize("latency_us")],
        reference=Given(lambda A, B: A @ B),
        verify_with=Given(reduced),
        inputs=Given(lambda p: [{}]),
    )
    verdict = study.verify(design(bfloat16))
    assert verdict.ok, verdict.message
    program = design(bfloat16).program
    small = program.with_params(**reduced(program.params))
    assert tolerances_of(small, study.verify_with, study.inputs)


def test_another_mesh_is_refused() -> None:
    with pytest.raises(AlloDseError, match=r"verify_with changes the mesh of gemm from \(8, 8, 8\) to \(4, 8, 8\)"):
        verify_design(design(), verify_with=lambda p: {"Pk": 4})


def test_a_mistake_in_the_study_is_not_the_designs() -> None:
    def one_argument(A: Array) -> Array:
        return A

    with pytest.raises(StudyError, match=r"reference of the study: TypeError: .*one_argument\(\) takes 1 positional"):
        verify_design(design(), reference=one_argument, verify_with=reduced)
    with pytest.raises(StudyError, match=r"returns shapes \[\(1, 32\)\] for C of \[\(32, 32\)\]"):
        verify_design(design(), reference=lambda A, B: (A @ B)[:1], verify_with=reduced)
    with pytest.raises(StudyError, match=r"verify_with of the study: .*unexpected keyword argument 'Q'"):
        verify_design(design(), verify_with=lambda p: {"Q": 3})


def test_a_program_is_run_on_the_inputs_of_its_study() -> None:
    """Its indices are in range for small integers only."""
    program = load_program(programs.picked)
    made = Design(program, unfolded(program), Buffering(), Device.load("u280"))
    sets = [{"X": np.arange(8), "At": np.full(8, k), "Y": np.full(8, 10)} for k in (3, 5)]
    assert "on small integers only: " in verify_design(made).message
    found = verify_and_prove(made, reference=lambda x, at: x[at] + 10, inputs=sets, verify_with=lambda p: {"N": 4})
    assert found.ok, found.message
    assert "the reference (8, 8, 8, 1 tasks)" in found.message
    assert "on the paths of 2 sets of inputs" in found.message
    assert not verify_design(made, reference=lambda x, at: x[3] + np.full(8, 10), inputs=sets).ok

    def sized(p: Any) -> Any:
        return {"At": np.zeros(p["N"], int)}

    assert "(4, 4, 4, 1 tasks)" in verify_design(made, inputs=sized, verify_with=lambda p: {"N": 4}).message
    assert not verify_design(made, reference=lambda x, at: 0 * x, inputs=sized).ok  # what is not given is not zero
    with pytest.raises(StudyError, match=r"inputs of the study: .*At"):
        verify_design(made, inputs=[{"At": np.zeros(8)}])
    study = dse.Study(
        "at", program=programs.picked, device="u280", inputs=sized, objectives=[dse.minimize("latency_us")]
    )
    assert study.programs.load(Assignment({})).params == {"N": 8}  # whose default is asked for, too
    with pytest.raises(StudyError, match=rf"inputs of .*no parameter 'size'; there are N \({__file__}:\d+\)"):
        verify_design(made, inputs=lambda p: {"At": np.zeros(p.size)})


def test_a_reference_may_take_what_is_updated() -> None:
    """Such tensors are zero where it has no parameters for them; those with defaults do not count."""
    program = load_program(programs.recurrence(4))
    made = Design(program, unfolded(program), Buffering(), Device.load("u280"))

    def updated(x: Array) -> Array:
        return np.tile(x[:4], len(x) // 4) + (np.arange(len(x)) // 4).astype(np.float32)

    def from_zero(size: int = programs.N) -> Array:
        return updated(np.zeros(size, np.float32))

    for reference in (updated, remembered(updated), from_zero):
        assert verify_design(made, reference=reference).message.startswith(
            f"equal to the unfolded program and the reference ({programs.N}, 1 tasks); "
        )
    files = golden_data(program, remembered(updated))
    before, after = (np.frombuffer(files[f"data/{name}.bin"], np.float32) for name in ("X", "golden/X"))
    assert before.all()
    assert np.array_equal(after, updated(before))
    program = load_program(programs.picked)
    picked = replace(made, program=program, fold=unfolded(program))
    given = {"X": np.arange(8), "At": np.full(8, 3), "Y": np.full(8, 10)}
    assert verify_design(picked, reference=lambda x, at, y: x[at] + y, inputs=given).ok


def test_indices_out_of_range_are_mistakes_of_inputs_not_of_designs() -> None:
    """They would rule out one design after the other, until none is left."""
    narrow = load_program(programs.picked, N=2)
    made = Design(narrow, unfolded(narrow), Buffering(), Device.load("u280"))
    with pytest.raises(StudyError, match=r"does not run on random inputs: .*of size 2"):
        verify_design(made)
    assert verify_design(made, inputs=[{"At": np.array([0, 1])}]).ok
    with pytest.raises(StudyError, match="does not run on the study's inputs"):
        verify_design(made, inputs=[{"At": np.array([0, 2])}])


def test_a_run_that_takes_too_long_counts_as_wrong() -> None:
    result = verify_design(design(tasks=32), verify_with=reduced, seconds=0.0)
    assert not result.ok
    assert "time limit" in result.message


def test_what_takes_too_much_work_is_proved_at_a_reduced_size_or_not_at_all() -> None:
    assert "(reduced size: 16x16, 16x16, 16x16)" in prove_design(design(tasks=4), verify_with=reduced).message
    with pytest.raises(TooMuchWork, match="rounds of loops are more than 8,000,000"):
        prove_design(design(tasks=4))
    with pytest.raises(TooMuchWork, match="more than 7,000 operations"):
        prove_design(design(tasks=4), verify_with=reduced, most_operations=7_000)


@pytest.mark.parametrize("at_once", [True, False])
def test_an_fpga_s_design_runs_at_the_depths_that_were_solved(at_once: bool) -> None:
    """The program does not at its own. What a pipeline holds needs no place in a FIFO, but in the program's order."""
    program = dse.load_program(programs.sums_first(20, at_once))
    made = dse.Design(program, unfolded(program), Buffering(), Device.load("u280"))
    depth = dse.FpgaSimulator().evaluate(made)["stream_depths"]["quotients"]
    found = verify_and_prove(made, reference=lambda a: (a / 7).astype(np.int32) + a.sum(dtype=np.int32))
    assert found.ok, found.message
    assert ("on these inputs only: the unfolded program ends early" in found.message) == at_once
    assert f'<int32_t, {depth}> quotients("quotients")' in dse.hls_project(made).hls_code
    if not at_once:
        dse.simulate(made)


def test_a_front_s_designs_are_proved_and_what_is_not_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verify_and_prove(design(tasks=4), verify_with=reduced_alike)
    assert found.ok
    assert "for all inputs: equal at 1 random point of degree 2" in found.message
    monkeypatch.setattr(verify, "equivalent", _refused)
    found = verify_and_prove(design(tasks=4), verify_with=reduced)
    assert found.ok
    assert found.message.endswith("; on these inputs only: 9 operations are more than 8")


def test_no_time_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FIRST_TURNS", 1)
    program = design(tasks=4).program.with_params(**reduced({"Pm": 4, "Pn": 4, "Pk": 4}))
    with pytest.raises(TooMuchWork, match="time limit"):
        dse.equivalent(program, program, seconds=-1.0)


def _refused(*_sides: object, **_options: object) -> None:
    raise TooMuchWork("9 operations are more than 8")
