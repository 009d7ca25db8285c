"""Programs run: NumPy's numbers, for the program as written and for every fold of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

import allo_dse as dse
from allo_dse.common.errors import SimulationError
from allo_dse.eval.execute.run import initial_state, run_graph, wiring_of
from allo_dse.lang import install
from allo_dse.lang.storage import storage_dtype
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.program import Program, load_program
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.simulator.engine import engine
from allo_dse.simulator.engine.engine import compile_bodies

from ...compiler import samples
from ..designs import gemm_fold

install()

import allo.dataflow as df
from allo.ir.types import Stream, bfloat16, float32, int8, int16, int32

from studies.gemm_npu import gemm

NUMPY = {int8: np.int8, int16: np.int16, bfloat16: ml_dtypes.bfloat16}


def operands(size: int, dtype: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-100, 100, (size, size)).astype(NUMPY[dtype]) for _ in range(2))
    return a, b, np.zeros((size, size), NUMPY[dtype])


def small_gemm(dtype: Any = int16, mesh: tuple[int, int, int] = (4, 4, 4), size: int = 16) -> Program:
    pk, pm, pn = mesh
    return load_program(gemm, M=size, N=size, K=size, Pm=pm, Pn=pn, Pk=pk, TyI=dtype, TyO=dtype)


@pytest.mark.parametrize("dtype", [int8, int16])
def test_integer_gemm_wraps_as_numpy_does(dtype: Any) -> None:
    a, b, c = operands(16, dtype)
    run_graph(small_gemm(dtype).vmg, a, b, c)
    assert np.array_equal(c, a @ b)


def test_bfloat16_accumulates_in_float32_within_a_task() -> None:
    a, b, c = operands(16, bfloat16)
    run_graph(small_gemm(bfloat16, (1, 4, 4)).vmg, a, b, c)
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_folding_never_changes_results(data: DataObject) -> None:
    k, m, n = (data.draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    program = small_gemm(int16, (k, m, n))
    space = fold_choices(program, 16)
    folds = list(space)
    fold = folds[data.draw(st.integers(0, len(folds) - 1))]
    a, b, c = operands(16, int16, seed=1)
    result = run_graph(program.vmg.fold(fold), a, b, c)
    assert np.array_equal(c, a @ b)
    assert result.network.node_count == fold.node_count


@pytest.mark.parametrize(
    "region", [None, samples.producer_consumer, samples.tiled, samples.hierarchical, samples.systolic]
)
def test_code_that_is_not_optimized_does_the_same(region: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program(region) if region else small_gemm()
    found = []
    for few in (0, engine.FEW_ELEMENTS):
        monkeypatch.setattr(engine, "FEW_ELEMENTS", few)
        rng = np.random.default_rng(1)
        arrays = [rng.integers(0, 9, t.shape).astype(storage_dtype(t.dtype)) for t in program.tensors]
        found.append((run_graph(program.vmg, *arrays).cycles, [array.tobytes() for array in arrays]))
    assert found[0] == found[1]


def test_code_is_optimized_where_there_is_much_to_compute() -> None:
    bodies = [Body(c.body.symbol, c.body.mlir) for c in small_gemm().task_classes]
    little, much, unknown = (
        compile_bodies(bodies, elements=elements) for elements in (engine.FEW_ELEMENTS, engine.FEW_ELEMENTS + 1, None)
    )
    assert much is unknown
    assert little is not much
    compiled = little._code(record=False).compiled, much._code(record=False).compiled
    assert compiled[0].signatures == compiled[1].signatures
    assert compiled[0].object_file != compiled[1].object_file


def test_elements_are_counted_before_a_run() -> None:
    # Products, the sum that each of the four tasks along K makes, and one filled and one copied element per result.
    assert small_gemm().elements_computed == 16**3 + (4 + 1 + 1) * 16**2
    assert load_program(samples.data_dependent).elements_computed is None


def test_folding_by_primitives_computes_the_same() -> None:
    program = small_gemm()
    a, b, c = operands(16, int16)
    run_graph(program.vmg.apply(program.vmg.fold(gemm_fold(2, 2, 2)).mapping_primitives), a, b, c)
    assert np.array_equal(c, a @ b)


def test_streams_of_a_bundle_become_one_that_is_used_in_turn() -> None:
    program = small_gemm(mesh=(4, 4, 4))
    wiring = wiring_of(program.vmg.fold(gemm_fold(2, 2, 2)), {})
    assert len(wiring.depth) == 4 * (2 + 1)  # per pair of nodes: a buffer in each, a stream between them
    inside = wiring_of(program.vmg.fold(gemm_fold(1, 1, 1)), {})
    assert inside.depth.tolist() == [1]


def test_a_local_buffer_holds_all_tokens_of_a_chain() -> None:
    @df.region()
    def top(A: int32[64], B: int32[64]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[A])
        def producer(local_A: int32[64]):
            for i in range(64):
                pipe.put(local_A[i])

        @df.kernel(mapping=[1], args=[B])
        def consumer(local_B: int32[64]):
            for i in range(64):
                local_B[i] = pipe.get() + 1

    program = load_program(top)
    chained = program.vmg.chain("producer_0", "consumer_0")
    assert wiring_of(chained, {}).depth.tolist() == [64]
    a, b = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run_graph(chained, a, b)
    assert np.array_equal(b, a + 1)


def crossing() -> Program:
    @df.region()
    def top(A: float32[8], B: float32[8]):
        there: Stream[float32, 2]
        back: Stream[float32, 2]

        @df.kernel(mapping=[1], args=[A])
        def left(local_A: float32[8]):
            for i in range(8):
                there.put(local_A[i])
            for i in range(8):
                local_A[i] = back.get()

        @df.kernel(mapping=[1], args=[B])
        def right(local_B: float32[8]):
            for i in range(8):
                back.put(local_B[i])
            for i in range(8):
                local_B[i] = there.get()

    return load_program(top)


def test_a_deadlock_is_named_with_places_in_the_source() -> None:
    a, b = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(DeadlockError) as caught:
        run_graph(crossing().vmg, a, b)
    message = str(caught.value)
    assert "left_0 waits to put to there" in message
    assert "right_0 waits to put to back" in message
    assert "test_run.py:" in message


def test_the_smallest_depths_that_clear_it_are_named() -> None:
    a, b = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(DeadlockError) as caught:
        run_graph(crossing().vmg, a, b)
    assert "from 2 to 8" in caught.value.hint


def test_a_recorded_run_explains_itself(tmp_path: Path) -> None:
    program = small_gemm()
    a, b, c = operands(16, int16)
    result = run_graph(program.vmg.fold(gemm_fold(1, 2, 2)), a, b, c, record=True)
    assert np.array_equal(c, a @ b)
    assert "gemm_" in result.explain().sentence
    dse.save_perfetto(result, tmp_path / "trace.json")
    assert "gemm_0_0_0" in (tmp_path / "trace.json").read_text()


@pytest.mark.parametrize(
    ("depths", "message"),
    [({"her": 3}, r"no stream 'her'\n.*its streams: there, back"), ({"there": 0}, "cannot hold 0 tokens"),
     ({"there": 2.5}, "cannot hold 2.5 tokens")],
)  # fmt: skip
def test_impossible_depths_are_refused(depths: Any, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        run_graph(crossing().vmg, np.ones(8, np.float32), np.zeros(8, np.float32), depths=depths)


def test_deeper_streams_clear_it() -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run_graph(crossing().vmg, a, b, depths={"there": 8, "back": 8})
    assert a.tolist() == [0.0] * 8
    assert b.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b, c: (a, b), "takes 3 arguments (A, B, C), 2 given"),
        (lambda a, b, c: (a, b, c[:8]), "argument C: expected int16 of shape (16, 16), got int16 of shape (8, 16)"),
        (lambda a, b, c: (a.astype(np.float32), b, c), "argument A: expected int16"),
        (lambda a, b, c: (a.tolist(), b, c), "argument A: expected a NumPy array, got list"),
        (lambda a, b, c: (a, b, np.broadcast_to(c[0], c.shape)), "argument C: the program writes it, and the array is"),
        (lambda a, b, c: (a, b, np.frombuffer(c.tobytes(), c.dtype)), "argument C: the program writes it, and the arr"),
    ],
)
def test_arguments_are_checked(change: Callable[..., Any], message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        run_graph(small_gemm().vmg, *change(*operands(16, int16)))
    assert message in str(caught.value)


def test_arrays_that_are_not_contiguous_are_written_back() -> None:
    a, b, c = operands(16, int16)
    run_graph(small_gemm().vmg, np.asfortranarray(a), b, c.T)
    assert np.array_equal(c.T, a @ b)


def test_a_time_limit_ends_a_run() -> None:
    a, b, c = operands(128, int16)
    with pytest.raises(SimulationError, match="time limit"):
        run_graph(small_gemm(mesh=(32, 32, 32), size=128).vmg, a, b, c, seconds=0.0)


def bf16_everywhere(N=64):
    @df.region()
    def top(A: bfloat16[N], C: bfloat16[4], D: bfloat16[2, 2]):
        @df.kernel(mapping=[1], args=[A, C, D])
        def core(a: bfloat16[N], c: bfloat16[4], d: bfloat16[2, 2]):
            table: bfloat16[2, 2] = TABLE
            total: bfloat16 = 0
            largest: bfloat16 = -1e30
            for i in range(N):
                total += a[i]
                if a[i] > 0:
                    largest = max(largest, a[i])
            c[0] = total
            c[1] = largest
            c[2] = total if largest > 2 else largest
            c[3] = 0.1
            d[:, :] = table

    return top


TABLE = np.array([[1.5, -2], [np.inf, -np.inf]], np.float32)


@pytest.mark.parametrize("few", [0, 1 << 22])
def test_numbers_in_bf16_pass_from_block_to_block(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to LLVM, a variable of a loop calls a function that not every C library has, and the process ends."""
    monkeypatch.setattr(engine, "FEW_ELEMENTS", few)
    program = load_program(bf16_everywhere)
    a = np.linspace(-1, 3, 64).astype(ml_dtypes.bfloat16)
    c, d = np.zeros(4, a.dtype), np.zeros((2, 2), a.dtype)
    run_graph(program.vmg, a, c, d)
    total = np.zeros((), a.dtype)
    for one in a:
        total = total + one
    assert c.tolist() == [total, 3, total, float(np.array(0.1).astype(a.dtype))]
    assert (d == TABLE.astype(a.dtype)).all()


def test_calls_with_one_state_compute_on_their_own_arrays() -> None:
    program = small_gemm()
    state = initial_state(program)
    cycles: set[tuple[bool, int]] = set()
    for vmg in (program.vmg, program.vmg, program.vmg.fold(gemm_fold(2, 2, 2)), program.vmg):
        rng = np.random.default_rng(len(cycles))
        a, b = (rng.integers(-9, 9, (16, 16)).astype(np.int16) for _ in range(2))
        c = np.zeros((16, 16), np.int16)
        result = run_graph(vmg, a, b, c, state=state)
        cycles.add((vmg is program.vmg, result.cycles))
        assert np.array_equal(c, a @ b)
    assert len(cycles) == 2
    result = run_graph(program.vmg, *operands(16, int16), depths=program.depths_with({}), state=state)
    assert result.cycles == max(cycles)[1]


@df.region()
def counted(Count: int32[1], X: int32[8], Y: int32[8]):
    passing: Stream[int32, 2]

    @df.kernel(mapping=[1], args=[Count, X])
    def first(count: int32[1], x: int32[8]):
        for i in range(count[0]):
            passing.put(x[i])

    @df.kernel(mapping=[1], args=[Count, Y])
    def second(count: int32[1], y: int32[8]):
        for i in range(count[0]):
            y[i] = passing.get() + 1


def test_results_of_earlier_calls_stay_though_memory_is_used_again() -> None:
    module = df.build(counted, target="simulator")
    count, x, y = np.zeros(1, np.int32), np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    results, seen = [], []
    for tokens in (8, 3, 9, 5, 8):
        count[0], y[:] = tokens, 0
        try:
            module(count, x, y)
        except SimulationError:
            assert tokens == 9  # outside of X: what the run leaves behind is nobody's
            continue
        assert y.tolist() == [k + 1 if k < tokens else 0 for k in range(8)]
        results.append(module.result)
        seen.append((module.result.by_node(), module.result.by_stream(), module.result.task_end.tolist()))
    assert len({str(one) for one in seen}) == 3
    assert seen == [(one.by_node(), one.by_stream(), one.task_end.tolist()) for one in results]
