"""Long loops without stream operations meet time limits and Ctrl-C; short ones are compiled as before."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install
from allo_dse.mapper.program import load_program
from allo_dse.simulator.codegen import bodies
from allo_dse.simulator.codegen.bodies import lower_body
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.engine.engine import _compiled

install()

import allo
import allo.dataflow as df
from allo.ir.types import int32

N = 8


def nest(rounds: int, outer: int, by_data: bool = False) -> Any:
    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[1], args=[A, B])
        def count(a: int32[N], b: int32[N]):
            with allo.meta_if(by_data):
                for _k in range(outer):
                    for i in range(a[0]):
                        b[i % N] = b[i % N] * 3 + i
            with allo.meta_else():
                for i in range(outer):
                    for j in range(rounds):
                        b[j % N] = b[j % N] * 3 + i

    return top


def reference(rounds: int, outer: int) -> Any:
    b = [0] * N
    for i in range(outer):
        for j in range(rounds):
            b[j % N] = (b[j % N] * 3 + i) & 0xFFFFFFFF
    return np.array(b, np.uint32).view(np.int32)


LONG = [{"rounds": 10**6, "outer": 10**6}, {"rounds": 3, "outer": 10**12}, {"rounds": 10**12, "outer": 2}]


@pytest.mark.parametrize(
    "shape", [*LONG, {"rounds": 1, "outer": 1, "by_data": True}, {"rounds": 1, "outer": 9, "by_data": True}]
)
def test_a_long_nest_meets_the_time_limit(shape: Any) -> None:
    graph = load_program(nest(**shape)).vmg
    a, b = np.full(N, 2**31 - 1, np.int32), np.zeros(N, np.int32)
    with pytest.raises(SimulationError, match=r"time limit of 0\.1 s"):
        run_graph(graph, a, b, seconds=0.1)


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Python ignores Ctrl-C where the shell that started it did, as for jobs in the background; and it discards an
    interrupt that comes while a callback of the garbage collector runs, of which Hypothesis has one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_a_long_nest_is_left_at_ctrl_c() -> None:
    graph = load_program(nest(10**6, 10**6)).vmg
    with pytest.raises(SimulationError, match="time limit"):  # compiled now, so that the signal meets the loop
        run_graph(graph, np.zeros(N, np.int32), np.zeros(N, np.int32), seconds=0.0)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_graph(graph, np.zeros(N, np.int32), np.zeros(N, np.int32))
    timer.join()


def test_ctrl_c_while_a_program_is_compiled_is_no_error_of_the_program() -> None:
    """Raised where a signal would be heard: when a function of ours is called. In callbacks from C that would be lost:
    MLIR's `walk` makes a RuntimeError of it."""
    (task_class,) = load_program(nest(10**6, 10**6)).kernels[0].classes
    calls = _interrupted(task_class.body, sys.maxsize)
    assert calls > 1000
    for last in range(1, calls, calls // 40):
        with pytest.raises(KeyboardInterrupt):
            _interrupted(task_class.body, last)


def _interrupted(body: Any, last: int) -> int:
    """Lower a body, which is interrupted at a call; returns how many there were."""
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_globals["__name__"].startswith("allo_dse"):
            calls += 1
            if calls == last:
                raise KeyboardInterrupt

    with new_context(), ir.Location.unknown():
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            lower_body(Body(body.symbol, body.mlir), "body1")
        finally:
            sys.setprofile(before)
    return calls


@pytest.mark.parametrize(("rounds", "outer"), [(71, 13), (5, 207), (1031, 1), (64, 64)])
def test_nests_that_are_cut_compute_what_they_say(rounds: int, outer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load_program(nest(rounds, outer)).vmg
    whole = run_graph(graph, np.zeros(N, np.int32), np.zeros(N, np.int32)).cycles
    monkeypatch.setattr(bodies, "LONG_ROUNDS", 64)
    monkeypatch.setattr(bodies, "PIECE_ROUNDS", 8)
    _compiled.cache_clear()
    b = np.zeros(N, np.int32)
    result = run_graph(graph, np.zeros(N, np.int32), b)
    _compiled.cache_clear()
    assert (b == reference(rounds, outer)).all()
    assert result.cycles == whole


@pytest.mark.parametrize("trips", [0, 1, 70_000, 200_003])
def test_loops_bounded_by_data_are_cut_too(trips: int) -> None:
    b = np.zeros(N, np.int32)
    run_graph(load_program(nest(1, 1, by_data=True)).vmg, np.full(N, trips, np.int32), b)
    expected = [0] * N
    for i in range(trips):
        expected[i % N] = (expected[i % N] * 3 + i) & 0xFFFFFFFF
    assert (b == np.array(expected, np.uint32).view(np.int32)).all()


def test_short_nests_are_compiled_as_before() -> None:
    (task_class,) = load_program(nest(1000, 1000)).kernels[0].classes
    with new_context(), ir.Location.unknown():
        text = str(lower_body(Body(task_class.body.symbol, task_class.body.mlir), "body1").module)
    (task_class,) = load_program(nest(10_000, 1000)).kernels[0].classes
    with new_context(), ir.Location.unknown():
        longer = str(lower_body(Body(task_class.body.symbol, task_class.body.mlir), "body1").module)
    suspensions = [each.count("coro.suspend") for each in (text, longer)]
    assert suspensions == [0, 2]  # at its begin, and in the loop
