"""Laws: whatever a schedule accepts keeps the results of a program."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.common.records import replace
from allo_dse.lang.schedule import customize
from allo_dse.mapper.program import Program

from . import programs

TRANSFORMABLE = [programs.product, programs.triangle, programs.two_nests, programs.row_sums, programs.diagonal]
quick = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(built: Any, seed: int = 0) -> list[np.ndarray]:
    """The arrays of a program after a run on random numbers, and what it returns."""
    generator = np.random.default_rng(seed)
    program = built.program
    tensors = program.tensors[: len(program.tensors) - len(program.results)]
    arrays = [generator.integers(-9, 9, t.shape).astype(np.int32) for t in tensors]
    returned = built(*arrays)
    return [*arrays, *([] if returned is None else [returned])]


def same(schedule: Any) -> None:
    """Assert that a scheduled program gives what the program gives without."""
    expected = outcome(customize(schedule.region).build())
    for built in (schedule.build(), read_again(schedule.build())):
        for mine, theirs in zip(outcome(built), expected, strict=True):
            np.testing.assert_array_equal(mine.reshape(theirs.shape), theirs)


def read_again(built: Any) -> Any:
    """What was built, with the bodies of its printed module in the place of its own."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(str(built.module))
        texts = [str(operation) for operation in module.body.operations]
    kernels = []
    for kernel in built.program.kernels:
        classes = tuple(replace(c, body=replace(c.body, mlir=texts.pop(0))) for c in kernel.classes)
        kernels.append(replace(kernel, classes=classes))
    built.program = Program.of(replace(built.program, kernels=tuple(kernels)))
    built.vmg = built.program.vmg
    return built


def names(schedule: Any) -> list[Any]:
    return [axis for _, band in schedule.get_loops() for _, axis in band]


@st.composite
def steps(draw: st.DrawFn, schedule: Any) -> Callable[[], object]:
    """One primitive on loops that the program has."""
    loops = names(schedule)
    kind = draw(st.sampled_from(["split", "reorder", "fuse", "tile", "compute_at"]))
    some = draw(st.lists(st.sampled_from(loops), min_size=1, max_size=3, unique=True))
    if kind == "split":
        factor = draw(st.integers(1, 7))
        return lambda: schedule.split(some[0], factor)
    if kind == "tile":
        factors = draw(st.lists(st.integers(1, 4), min_size=len(some), max_size=len(some)))
        return lambda: schedule.tile(*some, *factors)
    if kind == "compute_at":
        return lambda: schedule.compute_at(some[0], some[-1])
    return lambda: getattr(schedule, kind)(*some)


@quick
@given(data=st.data(), program=st.sampled_from(TRANSFORMABLE))
def test_accepted_steps_keep_results(data: st.DataObject, program: Any) -> None:
    schedule = customize(program)
    for _ in range(4):
        step = data.draw(steps(schedule))
        before = str(schedule.module)
        with contextlib.suppress(ProgramError):
            step()
            continue
        assert str(schedule.module) == before, "a refused step changes nothing"
    same(schedule)


def test_loops_of_one_round_can_be_fused() -> None:
    schedule = customize(programs.triangle)
    schedule.split("i", 1)
    schedule.fuse("i.outer", "i.inner")
    same(schedule)


@pytest.mark.parametrize("axis", ["i", "j", "k"])
@pytest.mark.parametrize("inner", ["j", "k"])
def test_buffer_at_keeps_results(axis: str, inner: str) -> None:
    schedule = customize(programs.product)
    schedule.reorder("k", "j") if inner == "j" else None
    schedule.buffer_at(schedule.C, axis=axis)
    same(schedule)


@pytest.mark.parametrize("axes", [["i"], ["j"], ["i", "j"]])
def test_reuse_at_keeps_results(axes: list[str]) -> None:
    schedule = customize(programs.stencil)
    target = schedule.A
    for axis in axes:
        target = schedule.reuse_at(target, axis)
    same(schedule)


def test_composed_schedules_keep_results() -> None:
    inner = customize(programs.multiply)
    inner.reorder("k", "j")
    inner.buffer_at(inner.Z, axis="i")
    inner.split("j", 3)
    inner.pipeline("j.inner")
    schedule = customize(programs.twice)
    schedule.compose(inner)
    assert str(schedule.module).count('loop_name = "j.inner"') == 2, "both calls are rewritten"
    same(schedule)


def test_an_illegal_order_is_refused_at_its_line() -> None:
    schedule = customize(programs.diagonal)
    with pytest.raises(ProgramError, match="element of `A` is used too early") as caught:
        schedule.reorder("j", "i")
    assert caught.value.file == __file__
    assert "i <, j >" in caught.value.hint


@pytest.mark.parametrize("shape", [(8, 6), (2, 3, 8), (48,)])
def test_reshape_keeps_results(shape: tuple[int, ...]) -> None:
    schedule = customize(programs.product)
    schedule.reshape(schedule.C, shape)
    assert f"memref<{'x'.join(map(str, shape))}xi32>" in str(schedule.module)
    same(schedule)


def test_reuse_at_with_a_stride_keeps_results() -> None:
    schedule = customize(programs.strided)
    schedule.reuse_at(schedule.reuse_at(schedule.A, "y"), "x")
    same(schedule)
