"""Limits of compilation hold in native code: what exceeds them is one error with its place."""

import _thread
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import allo_dse as dse
from allo_dse.common.errors import CompileLimit
from allo_dse.common.records import replace
from allo_dse.eval.equivalence.data_values import TooMuchWork
from allo_dse.lang import install
from allo_dse.simulator.codegen import compile_server
from allo_dse.simulator.codegen.compile_child import Request
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.engine import engine

install()

import allo
import allo.dataflow as df
from allo.ir.types import int16

X = np.arange(8, dtype=np.int16)


def copying(endless: int) -> Any:
    """A program that copies; where `endless`, with branches that were once simplified for ever."""

    @df.region()
    def top(X: int16[8], Y: int16[8]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: int16[8], y: int16[8]):
            for i in range(8):
                v: int16 = x[i]
                with allo.meta_if(endless == 1):
                    if v > 3 and (v != v or v > v):
                        for _j in range(3):
                            if v != v:
                                u: int16 = v  # noqa: F841
                            else:
                                w: int16 = v  # noqa: F841
                    else:
                        for _j in range(3):
                            pass
                y[i] = v

    return top


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine._compiled.cache_clear()
    yield
    engine._compiled.cache_clear()
    compile_server.end_server()


_LONG = (
    "func.func @long(%v0: i64) -> i64 {\n"
    + "".join(f"%v{k + 1} = arith.xori %v{k}, %v{k // 2} : i64\n" for k in range(300_000))
    + "return %v300000 : i64\n}\n"
)


@pytest.fixture
def long_where_branches(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Bodies with branches come to the compiler with a function that takes it far longer than it may."""
    requests, real = [], compile_server.compiled

    def longer(body: Body) -> Body:
        module = re.sub(r"}\s*$", lambda _: _LONG + "}", body.mlir) if body.mlir.startswith("module") else ""
        return Body(body.symbol, module or body.mlir + _LONG) if "scf.if" in body.mlir else body

    def compiled(request: Request) -> bytes:
        requests.append(request)
        return real(replace(request, bodies=tuple(map(longer, request.bodies))))

    monkeypatch.setattr(compile_server, "compiled", compiled)
    monkeypatch.setenv(compile_server.SECONDS_SETTING, "1")
    return requests


@pytest.fixture
def signal_of_the_limit_is_handled_and_blocked() -> Any:
    compile_server.end_server()
    before = signal.signal(signal.SIGXCPU, lambda *_: None)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGXCPU, before)


@pytest.mark.usefixtures("signal_of_the_limit_is_handled_and_blocked")
def test_compilation_that_takes_too_long_is_an_error_with_its_line(long_where_branches: list[Request]) -> None:
    endless, y = dse.load_program(copying(1)), np.zeros(8, np.int16)
    for _ in range(2):  # the second is not tried
        with pytest.raises(CompileLimit, match=r"limits.py:\d+:\d+: compiling kernel `core` takes") as found:
            dse.simulate(endless, X, y)
        assert "1 s of processor time" in found.value.message
        assert compile_server.SECONDS_SETTING in found.value.hint
    assert len(long_where_branches) == 2
    dse.simulate(dse.load_program(copying(0)), X, y)
    assert (y == X).all()


def test_a_comparison_that_takes_too_long_is_undecided(long_where_branches: list[Request]) -> None:
    endless = dse.load_program(copying(1))
    with pytest.raises(TooMuchWork, match="compiling kernel `core` takes"):
        dse.equivalent(endless, endless, inputs={"X": X})


def test_a_search_goes_on_past_a_design_whose_compilation_never_ends(
    tmp_path: Path, long_where_branches: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    study = dse.Study(
        "copying",
        program=copying,
        params={"endless": dse.choices([0, 1])},
        device="npu1_4col",
        objectives=[dse.minimize("latency_us")],
        reference=lambda X: X,
    )
    found = study.run(10, run_dir=tmp_path / "run", progress="plain", export=False)
    assert [best.params for best in found.front] == [{"endless": 0}]
    assert found.verified[found.front[0].key].ok
    said = [r.error or "" for r in found.records] + [one.message for one in found.verified.values() if not one.ok]
    (failed,) = filter(None, said)
    assert "COULD NOT BE RUN: design" in capsys.readouterr().err
    assert re.search(r"test_compile_limits\.py:\d+:\d+: compiling kernel `core` takes more than 1 s", failed)


GARBAGE = {
    "ends": "import sys; sys.exit(3)",
    "no message": "import os, time; os.write(1, (9).to_bytes(8, 'little') + b'not a map'); time.sleep(600)",
    "no length": "import os, time; os.write(1, b'Hello, world! ' * 9); time.sleep(600)",
    "part of a message": "import os; os.write(1, (99).to_bytes(8, 'little') + b'part')",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_compiler_that_dies_or_replies_garbage_is_one_error_with_its_line(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_server.end_server()
    monkeypatch.setattr(compile_server, "serve_as_fork", lambda *_: None)  # goes on as the command
    monkeypatch.setattr(compile_server, "python_running", lambda *_: [sys.executable, "-c", GARBAGE[kind]])
    monkeypatch.setattr(compile_server, "_ENDS_SECONDS", 0.5 if "message" in kind or "length" in kind else 20.0)
    program, y = dse.load_program(copying(0)), np.zeros(8, np.int16)
    with pytest.raises(CompileLimit, match=r"limits.py:\d+:\d+: compiling kernel `core` crashes the compiler"):
        dse.simulate(program, X, y)
    monkeypatch.undo()
    compile_server.end_server()
    compile_server._refused.clear()
    dse.simulate(dse.load_program(copying(0)), X, y)
    assert (y == X).all()


@pytest.mark.parametrize("has", ["threads", "memory"])
def test_a_process_with_threads_or_much_memory_compiles_in_a_new_process(
    has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(*_: object) -> None:
        raise AssertionError("a fork waits for locks of threads that it does not have, and copies what is written")

    monkeypatch.setattr(compile_server, "serve_as_fork", forked)
    compile_server.end_server()
    done = threading.Event()
    if has == "threads":
        _thread.start_new_thread(done.wait, ())  # `threading` does not count it
    else:
        own = psutil.Process().memory_info()
        monkeypatch.setenv(compile_server.GIB_SETTING, str((own.rss - own.shared) * 7 / 2**30))
    try:
        dse.simulate(dse.load_program(copying(0)), X, y := np.zeros(8, np.int16))
    finally:
        done.set()
    assert (y == X).all()


def test_memory_is_limited_in_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compile_server.GIB_SETTING, "0.5")
    text = """
        memref.global "private" constant @large : memref<2000000000xi8> = dense<1>
        func.func @reading(%i: index, %y: memref<8xi8>) {
          %large = memref.get_global @large : memref<2000000000xi8>
          %v = memref.load %large[%i] : memref<2000000000xi8>
          memref.store %v, %y[%i] : memref<8xi8>
          return
        }"""
    with pytest.raises(CompileLimit, match=r"compiling reading .*0\.5 GiB of memory") as found:
        engine.compile_bodies([Body("reading", text)])
    assert compile_server.GIB_SETTING in found.value.hint
    dse.simulate(dse.load_program(copying(0)), X, y := np.zeros(8, np.int16))
    assert (y == X).all()


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compile_server.SECONDS_SETTING, "soon")
    with pytest.raises(dse.SimulationError, match="is 'soon'"):
        dse.simulate(dse.load_program(copying(0)), X, np.zeros(8, np.int16))
