"""Kernels whose independent parts are kernels of their own compute what the whole ones compute, no later."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install

install()

from studies.polybench_fpga import atax, bicg, gemm, gesummv, mvt

N = 6
LOCALS, TENSORS = ("u", "v", "w"), ("T0", "T1", "T2", "T3")
PROGRAM = """
import allo.dataflow as df
from allo.ir.types import Stream, int32

@df.region()
def top(T0: int32[6], T1: int32[6], T2: int32[6], T3: int32[6], S0: int32[6], S1: int32[6]):
    pipe0: Stream[int32, 2]
    pipe1: Stream[int32, 2]

    @df.kernel(mapping=[1], args=[T0, T1, T2, T3])
    def work(T0: int32[6], T1: int32[6], T2: int32[6], T3: int32[6]):
        u: int32[6] = 1
        v: int32[6] = 2
        w: int32[6] = 3
{work}

    @df.kernel(mapping=[1], args=[S0])
    def first(s: int32[6]):
        for i in range(6):
            s[i] = pipe0.get()

    @df.kernel(mapping=[1], args=[S1])
    def second(s: int32[6]):
        for i in range(6):
            s[i] = pipe1.get()
"""


@st.composite
def bodies(draw: st.DrawFn) -> list[str]:
    """Loops that read and write local arrays, tensors and, once each, streams."""
    arrays = st.sampled_from([*LOCALS, *TENSORS])
    loops = [
        f"{draw(arrays)}[i] = {draw(arrays)}[i] + {draw(st.sampled_from(TENSORS))}[5 - i] * {draw(st.integers(1, 3))}"
        for _ in range(draw(st.integers(1, 5)))
    ]
    for pipe in ("pipe0", "pipe1"):
        loops.insert(draw(st.integers(0, len(loops))), f"{pipe}.put({draw(arrays)}[i])")
    return loops


def written(directory: Path, loops: list[str]) -> Any:
    """The region whose kernel `work` has these loops."""
    text = PROGRAM.format(work="\n".join(f"        for i in range(6):\n            {loop}" for loop in loops))
    path = directory / f"region_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.top


def same(whole: dse.Program, *arrays: Any) -> tuple[int, int]:
    """Cycles of the program and of its parts, whose results are the same."""
    cycles, results = [], []
    for program in (whole, whole.split):
        copies = [array.copy() for array in arrays]
        cycles.append(run_graph(program.vmg, *copies).cycles)
        results.append(copies)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    return cycles[0], cycles[1]


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(bodies())
def test_parts_compute_what_the_whole_does(tmp_path: Path, loops: list[str]) -> None:
    program = dse.load_program(written(tmp_path, loops))
    event(f"{len(program.split.kernels) - 2} parts")
    rng = np.random.default_rng(1)
    whole, parts = same(program, *(rng.integers(-9, 9, N).astype(np.int32) for _ in range(6)))
    assert parts <= whole


@pytest.mark.parametrize(
    ("loops", "count"),
    [
        (["u[i] = T0[i]", "T1[i] = u[i]", "v[i] = T0[i]", "T2[i] = v[i]"], 2),  # both only read T0
        (["u[i] = T0[i]", "T1[i] = u[i]", "v[i] = T1[i]", "T2[i] = v[i]"], 1),  # T1 is handed on
        (["T1[i] = T0[i]", "T2[i] = T3[i]", "T3[i] = 5"], 2),  # T3 is read before it is written
        (["pipe0.put(T0[i])", "T1[i] = T2[i]", "pipe1.put(u[i])"], 3),
        (["pipe0.put(u[i])", "pipe1.put(u[i])", "T1[i] = T2[i]"], 2),
    ],
    ids=["apart", "through a tensor", "read first", "streams", "streams of an array"],
)
def test_what_belongs_together(tmp_path: Path, loops: list[str], count: int) -> None:
    constants = [f"{pipe}.put(1)" for pipe in ("pipe0", "pipe1") if not any(pipe in loop for loop in loops)]
    program = dse.load_program(written(tmp_path, [*loops, *constants]))
    parts = [kernel.name for kernel in program.split.kernels if kernel.name.startswith("work")]
    assert len(parts) == count + len(constants)


def test_products_that_do_not_depend_on_each_other_run_at_once() -> None:
    rng = np.random.default_rng(1)
    small: dict[Any, dict[str, int]] = {bicg: {"M": 8, "N": 10, "P": 2}, mvt: {"N": 10, "P": 2}}
    for source, params in small.items():
        program = dse.load_program(source, **params, V=5, W=5)
        whole, parts = same(program, *(rng.integers(0, 5, t.shape).astype(np.float32) for t in program.tensors))
        assert parts < 0.8 * whole
        assert [kernel.name for kernel in program.split.kernels] == ["rows_part0", "rows_part1", "add", "result"]
        assert program.split.with_params(V=2).apart


@pytest.mark.parametrize("source", [gemm, atax, gesummv])
def test_one_product_stays_whole(source: Any) -> None:
    program = dse.load_program(source)
    assert [k.name for k in program.split.kernels] == [k.name for k in program.kernels]


def test_a_search_decides_on_parts() -> None:
    study = dse.Study(
        "parts", program=mvt, params={"N": 40, "P": 4, "V": 10, "W": 5}, device="u280", schedules="auto",
        objectives=[dse.minimize("latency_cycles")], trials=1,
    )  # fmt: skip
    candidates = [study.space.decode_genes({"parts": parts}) for parts in (0, 1)]
    assert [c.design.program.apart for c in candidates if c is not None] == [False, True]
    assert len({c.key for c in candidates if c is not None}) == 2
    named = dse.Study(
        "named", program=mvt, params={"N": 40, "P": 4, "V": 10, "W": 5}, device="u280",
        schedules=["auto", dse.pipeline("rows:j")], objectives=[dse.minimize("latency_cycles")], trials=1,
    )  # fmt: skip
    found = named.space.decode_genes({"parts": 1})
    assert found is not None
    assert not found.design.program.apart
