"""How strictly programs are checked: `strict` and `check`, by a region, a build, or for all that is compiled."""

# Programs are written as users write them:

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32

from allo_dse.common.errors import ProgramError, ProgramWarning, SimulationError
from allo_dse.compiler import compile_region
from allo_dse.lang.rules import rules

N = 8


@df.region()
def one_too_many(A: int32[N], B: int32[N]):
    pipe: Stream[int32, 2]

    @df.kernel(mapping=[1], args=[A])
    def send(a: int32[N]):
        for i in range(N):
            pipe.put(a[i])
        pipe.put(0)  # the last one

    @df.kernel(mapping=[1], args=[B])
    def receive(b: int32[N]):
        for i in range(N):
            b[i] = pipe.get()


@df.region()
def only_data_knows(A: int32[N], B: int32[N]):
    pipe: Stream[int32, N]

    @df.kernel(mapping=[1], args=[A])
    def send(a: int32[N]):
        for i in range(N):
            if a[i] > 0:
                pipe.put(a[i])

    @df.kernel(mapping=[1], args=[B])
    def receive(b: int32[N]):
        for i in range(3):
            b[i] = pipe.get()


def flat(A: int32[4, 3], B: int32[12]):
    for i in range(12):
        B[i] = A[0, i]
        A[1, i - 3] = 7


def beyond(A: int32[4, 3], B: int32[12]):
    for i in range(12):
        B[i] = A[1, i]


def numbers() -> tuple[Any, Any]:
    return np.arange(N, dtype=np.int32), np.zeros(N, np.int32)


def test_tokens_that_are_left_are_a_warning_at_the_last_put() -> None:
    (warning,) = compile_region(one_too_many).warnings
    place, _, message = warning.partition(": warning: ")
    line = int(place.rsplit(":", 2)[1])
    with open(__file__, encoding="utf-8") as text:
        assert "# the last one" in text.readlines()[line - 1]
    assert message == "stream `pipe`: 9 puts, 8 gets; what is left is lost"
    a, b = numbers()
    with pytest.warns(ProgramWarning, match="9 puts, 8 gets") as told:
        df.build(one_too_many)(a, b)
    assert len(told) == 1
    assert b.tolist() == a.tolist()


def test_strict_rules_make_them_an_error() -> None:
    with pytest.raises(ProgramError, match="9 puts, 8 gets"):
        df.build(one_too_many, strict=True)
    with rules(strict=True), pytest.raises(ProgramError, match="9 puts, 8 gets"):
        compile_region(one_too_many)


def test_a_run_tells_of_tokens_that_only_data_leaves() -> None:
    a, b = numbers()
    with pytest.warns(ProgramWarning, match="stream `pipe` holds 4 tokens at the end; they are lost"):
        df.build(only_data_knows)(a, b)
    assert b.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    with pytest.raises(SimulationError, match=r"test_rules.py:\d+:\d+: stream `pipe` holds 4 tokens"):
        df.build(only_data_knows, strict=True)(a, b)


@pytest.mark.parametrize("options", [{}, {"target": "vitis_hls", "mode": "csim"}], ids=str)
def test_flat_addresses_mean_what_lies_there(options: dict[str, str]) -> None:
    a, b = np.arange(12, dtype=np.int32).reshape(4, 3).copy(), np.zeros(12, np.int32)
    df.build(flat, check="run", **options)(a, b)
    assert b.tolist() == list(range(12))
    assert a.tolist() == [[7] * 3] * 4


def test_flat_addresses_stay_in_the_array() -> None:
    a, b = np.zeros((4, 3), np.int32), np.zeros(12, np.int32)
    with pytest.raises(SimulationError, match=r"index `\(1, i\)` into an array of 12 elements is 12 in beyond_0"):
        df.build(beyond, check="run")(a, b)
    with pytest.raises(ProgramError, match="index 11 is out of range for dimension 1 of size 3"):
        df.build(beyond)


def test_a_region_may_say_so_itself() -> None:
    @df.region(check="run")
    def top(A: int32[4, 3]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[4, 3]):
            for i in range(12):
                a[0, i] = i

    a = np.zeros((4, 3), np.int32)
    df.build(top)(a)
    assert a.ravel().tolist() == list(range(12))


def test_a_check_that_does_not_exist() -> None:
    with pytest.raises(ProgramError, match="check='never' is not known") as caught:
        df.build(flat, check="never")
    assert caught.value.hint == "known: 'compile', 'run'"


HEAD = "import allo\nimport allo.dataflow as df\nfrom allo.ir.types import *\n\n\n"
KERNEL = """@df.region()
def top(A: int32[4], F: float32[4]):
    {}

    @df.kernel(mapping={}, args=[A, F])
    def core(a: int32[4], f: float32[4]):
        p = df.get_pid()
        """


def kernel(body: str, mapping: str = "[2]", streams: str = "s: Stream[int32, 2][4]") -> str:
    return HEAD + KERNEL.format(streams, mapping) + body + "\n"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (kernel("s[p / 2].put(a[0])"), "a stream index must be an integer, not float64"),
        (kernel("s[f[0]].put(a[0])"), "a stream index must be an integer, not float32"),
        (kernel("x: int32 = a[0]\n        a[1] = x[1, 2]"), "the position of a bit of int32 must be an integer"),
        (kernel("x: int32 = a[0]\n        a[1] = x[f[0]]"), "the position of a bit of int32 must be an integer"),
        (kernel("a[p * 10**30] = 1"), "is out of range for dimension 0 of size 4"),
        (kernel("a[0:10**30] = 1"), "is out of range for dimension 0 of size 4"),
        (kernel("a[0] = p + 10**30"), "a number that differs between tasks must fit 64 bits"),
        (kernel("a[0] = 10**10**9"), "bits at compile time; the limit is 1,048,576"),
        (kernel("for i in range(10**30):\n            a[0] = 1"), "a bound of a loop must fit 63 bits"),
        (kernel("pass", mapping="[10**9]"), "a kernel has 1,000,000,000 tasks; the limit is 16,777,216"),
        (kernel("pass", streams="s: Stream[int32, 2][10**30]"), "streams; the limit is 16,777,216"),
        (kernel("pass", streams="s: Stream[int32, 10**30]"), "a stream's depth must be at most 2,147,483,647"),
        (kernel("b: int32[2**64]"), "elements; the limit is 1,099,511,627,776"),
        (kernel("with allo.meta_for(10**6) as i:\n            a[0] = i"), "1,000,000 iterations at compile time"),
        (kernel("x = [i for i in range(10**9)]"), "1,000,000,000 iterations at compile time"),
    ],
)
def test_what_is_absurd_is_refused_at_once(tmp_path: Path, program: str, message: str) -> None:
    path = tmp_path / "absurd.py"
    path.write_text(program)
    names: dict[str, Any] = {}
    exec(compile(program, str(path), "exec"), names)
    with pytest.raises(ProgramError) as caught:
        compile_region(names["top"])
    assert message in caught.value.message
    assert caught.value.file == str(path)


def test_limits_can_be_raised_and_say_how() -> None:
    @df.region()
    def top(A: int32[4]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[4]):
            with allo.meta_for(8) as i, allo.meta_for(2) as j:
                a[0] += i * j

    with rules(unrolled=23), pytest.raises(ProgramError, match="kernel `core` has 24 iterations") as caught:
        compile_region(top)
    assert caught.value.hint == "if that is meant, compile inside `with allo_dse.lang.rules(unrolled=24):`"
    with rules(unrolled=24):
        compile_region(top)


def test_what_the_users_function_raises_has_a_place() -> None:
    def program(P: int = 2) -> Any:
        return undefined_name(P)

    with pytest.raises(ProgramError, match=r"`program` raised NameError: name 'undefined_name'") as caught:
        compile_region(program, {"P": 4})
    assert "return undefined_name(P)" in caught.value.source_line
    with pytest.raises(ProgramError, match="cannot call `program` with parameters"):
        compile_region(program, {"Q": 4})
