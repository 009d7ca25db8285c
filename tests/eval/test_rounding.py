"""Bounds of roundings hold, refuse what is wrong, and have nothing to do with the size of a mesh."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray

import allo_dse as dse
from allo_dse.backends.npu.board.build import wrong_elements
from allo_dse.device.device import Device
from allo_dse.eval.execute.rounding import analysed, has_floats, unit_of
from allo_dse.eval.execute.run import run_graph
from allo_dse.eval.tolerances import tolerances_of
from allo_dse.eval.verify import asked, directions, positive_arrays, random_arrays, unlike_reference, verify_design
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.program import Program, load_program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design
from allo_dse.space.params import Assignment

install()

import allo
import allo.dataflow as df
from allo.ir.types import bfloat16, float16, float32, float64, int32
from allo.memory import Layout

Array = NDArray[Any]
S = Layout.Shard
STUDIES: dict[str, dict[str, Any]] = {
    "attention_npu": {},
    "elementwise_npu": {},
    "ffn_npu": {},
    "gemm_npu": {"dtype": "bf16", "size": 256},
    "gemm_two_level_npu": {},
    "gemm_zcu102": {},
    "gemv_npu": {},
    "mlp_npu": {},
    "multihead_attention_npu": {},
    "norm_npu": {},
    "reduction_npu": {},
    "resnet_npu": {},
    "rope_npu": {},
    "scheduled_fpga": {},
    "systolic_fpga": {},
    "vector_add_npu": {},
}


@cache
def of_study(name: str) -> tuple[Program, Any]:
    """The smallest instance of a study's program that it is verified with, and its reference."""
    module = importlib.import_module(f"studies.{name}")
    made = module.study
    if not isinstance(made, dse.Study):
        known = inspect.signature(made).parameters
        made = made(**{key: value for key, value in STUDIES[name].items() if key in known})
    params = next(iter(made.parameters.assignments()))
    program = made.programs.load(params)
    if made.verify_with is not None:
        program = program.with_params(**made.verify_with(Assignment(params)))
    return program, made.reference


def as_design(program: Program) -> Design:
    return Design(program, unfolded(program), Buffering(), Device.load("u280"))


def tile_wrong(one: Array) -> Array:
    found = one.copy()
    part = tuple(slice(0, max(1, size // 4)) for size in one.shape)
    found[part] = -found[part] + 1
    return found


CONTROLS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "times 1.1": lambda one: one * 1.1 if one.dtype.kind == "f" else (one * 11) // 10,
    "rows swapped": lambda one: one[::-1].copy(),
    "one tile wrong": tile_wrong,
    "another activation": lambda one: np.where(one > np.median(one), one, one * 0).astype(one.dtype),
}


def changed(reference: Callable[..., Any], control: Callable[[Array], Array]) -> Callable[..., Any]:
    def wrong(*inputs: Array) -> Any:
        result = reference(*inputs)
        several = isinstance(result, tuple)
        first, *rest = map(np.asarray, result if several else (result,))
        return (control(first), *rest) if several else control(first)

    wrong.__signature__ = inspect.signature(reference)
    return wrong


@pytest.mark.parametrize("name", STUDIES)
def test_studies_are_right_and_their_negative_controls_are_not(name: str) -> None:
    program, reference = of_study(name)
    made = as_design(program)
    right = verify_design(made, reference=reference)
    assert right.ok, right.message
    for control, change in CONTROLS.items():
        assert not verify_design(made, reference=changed(reference, change)).ok, control


def exchanged(one: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: one(b, a)


@pytest.mark.parametrize(("name", "wrong"), [
    ("gemm_npu", exchanged(np.matmul)),
    ("gemm_npu", lambda A, B: A[:, :-1] @ B[:-1]),
    ("gemm_two_level_npu", exchanged(np.matmul)),
    ("gemm_two_level_npu", lambda A, B: A[:, :-1] @ B[:-1]),
    ("gemv_npu", lambda A, x: A[:, :-1] @ x[:-1]),
    ("norm_npu", lambda X, W: X / np.sqrt((X[:, :-1] ** 2).mean(axis=1, keepdims=True) + 1e-5) * W),
    ("norm_npu", lambda X, W: X / np.sqrt((X**2).mean(axis=1, keepdims=True) + 1e-5)),
])  # fmt: skip
def test_a_last_step_that_is_missing_and_inputs_exchanged_are_refused(name: str, wrong: Callable[..., Any]) -> None:
    found = verify_design(as_design(of_study(name)[0]), reference=wrong)
    assert not found.ok
    assert " is allowed" in found.message or " shapes " in found.message


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "attention_npu"])
def test_exported_checks_refuse_the_controls_on_numbers(name: str) -> None:
    """What build.py and test benches of C++ compare with, on results of the program itself."""
    program = of_study(name)[0]
    if not has_floats(program):
        return
    tolerances = tolerances_of(program)
    arrays = random_arrays(program, asked(program), 3)
    analysis = analysed(program.vmg, arrays, depths={}, seconds=60)
    for tensor in directions(program)[1]:
        one, share = analysis.tensors[tensor], tolerances[tensor]
        allowed = {"largest": share.largest, "rms": share.rms}
        assert wrong_elements(one.rounded, one.exact, allowed) == 0
        rounded = one.rounded.astype(np.float64)
        for control, change in CONTROLS.items():
            assert wrong_elements(change(rounded), one.exact, allowed), (control, allowed)


def sums(P=4, N=64, Ty=float32):
    @df.region()
    def top(A: Ty[N], B: Ty[N], C: Ty[N]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(a: Ty[N] @ [S(0)], b: Ty[N] @ [S(0)], c: Ty[N] @ [S(0)]):
            c[:] = allo.add(a, b)

    return top


def test_a_bound_does_not_know_how_many_tasks_there_are() -> None:
    found = {tasks: tolerances_of(load_program(sums, P=tasks, N=512, Ty=bfloat16))["C"] for tasks in (1, 512)}
    assert found[1] == found[512]
    assert found[1].largest < 0.1


OPERATIONS = {
    "sum": lambda x, y: x + y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / (y * y + 1),
    "exp": lambda x, y: np.exp(x - y),
    "root": lambda x, y: np.sqrt(x * x + y * y),
    "tanh": lambda x, y: np.tanh(x * y),
}


def scalars(Ty=float32):
    @df.region()
    def top(X: Ty[32], Y: Ty[32], Z: Ty[6, 32]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: Ty[32], y: Ty[32], z: Ty[6, 32]):
            for i in range(32):
                z[0, i] = x[i] + y[i]
                z[1, i] = x[i] * y[i]
                z[2, i] = x[i] / (y[i] * y[i] + 1)
                z[3, i] = allo.exp(x[i] - y[i])
                z[4, i] = allo.sqrt(x[i] * x[i] + y[i] * y[i])
                z[5, i] = allo.tanh(x[i] * y[i])

    return top


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32, float64])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), power=st.integers(-4, 0))
def test_bounds_hold_and_the_rounded_values_are_those_of_any_run(dtype: Any, seed: int, power: int) -> None:
    program = load_program(scalars, Ty=dtype)
    arrays = random_arrays(program, ["X", "Y"], seed)
    for name in "XY":
        arrays[name] = (arrays[name].astype(np.float64) * 2.0**power).astype(arrays[name].dtype)
    one = analysed(program.vmg, arrays, depths={}, seconds=60).tensors["Z"]
    own = {name: array.copy() for name, array in arrays.items()}
    run_graph(program.vmg, *own.values())
    np.testing.assert_array_equal(own["Z"].astype(np.float64), one.rounded.astype(np.float64))
    x, y = (arrays[name].astype(np.float64) for name in "XY")
    exact = np.stack([function(x, y) for function in OPERATIONS.values()])
    np.testing.assert_allclose(one.exact, exact, rtol=1e-12)
    assert (one.error <= one.bound * 1.001).all()
    assert (one.bound <= 0.2 * np.abs(exact) + 1).all()
    assert not unlike_reference(one, exact)[0].any()
    assert unlike_reference(one, exact * 1.1)[0].any()


@pytest.mark.parametrize("name", ["multihead_attention_npu", "ffn_npu"])
def test_bounds_stay_finite_through_exponentials_and_refuse_what_roundings_do_not_explain(name: str) -> None:
    program, reference = of_study(name)
    (tensor,) = directions(program)[1]
    for make in (random_arrays, positive_arrays):
        arrays = make(program, asked(program, reference), 0)
        one = analysed(program.vmg, arrays, depths={}, seconds=60).tensors[tensor]
        assert (one.error <= one.most).all()
        assert one.bound.max() < 0.5 * np.abs(one.exact).max()
        for change in (np.negative, lambda rounded: rounded * 2):
            other = structs.replace(one, rounded=change(one.rounded))
            wrong, why = unlike_reference(other, one.exact)
            assert wrong.any()
            assert why.endswith("which roundings do not explain")


def threshold(N=64):
    @df.region()
    def top(X: bfloat16[N], C: int32[N]):
        @df.kernel(mapping=[1], args=[X, C])
        def core(x: bfloat16[N], c: int32[N]):
            for i in range(N):
                third: bfloat16 = x[i] * x[i]
                c[i] = third * 64

    return top


def test_decisions_that_roundings_change_are_counted_and_excuse_as_many_elements() -> None:
    program = load_program(threshold)
    analysis = analysed(program.vmg, random_arrays(program, ["X"], 0), depths={}, seconds=60)
    assert 0 < analysis.undecided < 64
    made = as_design(program)
    right = verify_design(made, reference=lambda X: (X.astype(np.float64) ** 2 * 64).astype(np.int32))
    assert right.ok, right.message
    assert not verify_design(made, reference=lambda X: np.zeros(64, np.int32)).ok


def test_a_reference_that_ignores_an_input_is_noticed() -> None:
    def first(P=2, N=8):
        @df.region()
        def top(A: float32[N], B: float32[N], C: float32[N]):
            @df.kernel(mapping=[P], args=[A, B, C])
            def core(a: float32[N] @ [S(0)], b: float32[N] @ [S(0)], c: float32[N] @ [S(0)]):
                c[:] = allo.add(a, a)

        return top

    found = verify_design(as_design(load_program(first)), reference=lambda A, B: A + A)
    assert found.ok
    assert found.message.endswith("; the reference gives the same whatever B is")
    assert not verify_design(as_design(load_program(sums)), reference=lambda A, B: A + A).ok


def test_fold_only_is_a_statement_of_its_own() -> None:
    program = load_program(sums)
    assert verify_design(as_design(program)).message.startswith("equal to the unfolded program (")
    assert verify_design(as_design(program), reference=lambda A, B: A + B).message.startswith(
        "equal to the unfolded program and the reference ("
    )


def test_what_no_activation_hides_is_among_the_inputs() -> None:
    program = load_program(sums)
    made = positive_arrays(program, ["A", "B"], 0)
    assert all((made[name].astype(float) > 0).all() for name in "AB")
    assert made["A"].max() / made["A"].min() > 4


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_a_reference_is_as_precise_as_its_values(dtype: str, bits: int) -> None:
    assert unit_of((np.arange(1, 100) / 7).astype(dtype)) == 2.0**-bits
