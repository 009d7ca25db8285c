"""Every mistake is reported once, in the user's terms, at the user's line: the one that is marked with `# here`."""

# Programs are written as users write them:
# ruff: noqa: B007, F841, F842, UP037

from __future__ import annotations

import re
from typing import Any

import pytest

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Fixed, Stream, float32, int8, int32
from allo.memory import Layout

from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region

from . import samples

S, R = Layout.Shard, Layout.Replicate
M, N = 8, 4


def check(region: object, message: str, at: str, file: str = __file__) -> ProgramError:
    """The region fails with `message`, at the marked line, the caret at the text `at`."""
    with pytest.raises(ProgramError, match=re.escape(message)) as caught:
        compile_region(region)  # type: ignore[arg-type]
    error = caught.value
    assert error.file == file
    assert error.column is not None
    assert "# here" in error.source_line, str(error)
    assert error.source_line[error.column - 1 :].startswith(at), str(error)
    shown = str(error).splitlines()
    assert shown[0].startswith(f"{file}:{error.line}:{error.column}: error: ")
    assert shown[2].index("^") - shown[1].index(error.source_line) == error.column - 1
    return error


def test_unknown_name() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            total: int32 = 0
            a[0] = totl  # here

    error = check(top, "unknown name `totl`", "totl")
    assert "did you mean `total`?" in error.hint


def test_powers_of_fixed_point_numbers() -> None:
    @df.region()
    def scalar(A: Fixed(16, 8)[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: Fixed(16, 8)[M]):
            a[0] = a[1] ** 2  # here

    @df.region()
    def tile(A: Fixed(16, 8)[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: Fixed(16, 8)[M]):
            a[:] = a**2  # here

    check(scalar, "powers of fixed-point numbers are not defined", "a[1] ** 2")
    check(tile, "powers of fixed-point numbers are not defined", "a**2")


def test_unknown_name_in_annotation() -> None:
    @df.region()
    def top(A: "int32[M, Missing]"):  # here
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            pass

    check(top, "unknown name `Missing`", '"int32')


def test_name_ends_with_its_block() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            for i in range(M):
                x: int32 = a[i]
            a[0] = x  # here

    error = check(top, "unknown name `x`", "x")
    assert "to the end of that block" in error.hint


def test_region_argument_without_args() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1])
        def core():
            A[0] = 1  # here

    check(top, "`A` is an argument of the region", "A")


def test_layout_not_divisible() -> None:
    @df.region()
    def top(A: int32[30, N]):
        @df.kernel(mapping=[2, 4], args=[A])
        def core(a: int32[30, N] @ [S(1), R]):  # here
            pass

    check(top, "dimension 0 of A is 30, not divisible by mesh axis 1 of size 4", "a: int32")


def test_layout_axis_out_of_range() -> None:
    @df.region()
    def top(A: int32[M, N]):
        @df.kernel(mapping=[2], args=[A])
        def core(a: int32[M, N] @ [S(1), R]):  # here
            pass

    check(top, "shards on mesh axis 1, but the mesh has 1 axes", "a: int32")


def test_layout_of_wrong_rank() -> None:
    @df.region()
    def top(A: int32[M, N]):
        @df.kernel(mapping=[2], args=[A])
        def core(a: int32[M, N] @ [S(0)]):  # here
            pass

    check(top, "1 entries for 2 dimensions", "a: int32")


def test_matmul_shapes() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M, N], b: int32[M, N]):
            b[:, :] = allo.matmul(a, b)  # here

    check(top, "matmul of [8, 4] and [8, 4]: 4 columns against 8 rows", "allo.matmul")


def test_assignment_shapes() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[N, M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M, N], b: int32[N, M]):
            b[:, :] = a  # here

    check(top, "shapes do not match", "b[:, :] = a")


def test_block_of_wrong_shape() -> None:
    @df.region()
    def top(A: int32[M, N]):
        pipe: Stream[int32[N], 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[M, N]):
            pipe.put(a)  # here

        @df.kernel(mapping=[1])
        def receive():
            x: int32[N] = pipe.get()

    check(top, "stream `pipe` carries blocks of shape [4], but a tile of shape [8, 4] is put", "pipe.put")


def test_block_of_wrong_type() -> None:
    @df.region()
    def top(A: int32[M]):
        pipe: Stream[int8[M], 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[M]):
            pipe.put(a)  # here

        @df.kernel(mapping=[1])
        def receive():
            x: int8[M] = pipe.get()

    check(top, "stream `pipe` carries int8, but int32 is put", "pipe.put")


def test_float_into_integer_stream() -> None:
    @df.region()
    def top(A: float32[M]):
        pipe: Stream[int8, 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: float32[M]):
            pipe.put(a[0])  # here

        @df.kernel(mapping=[1])
        def receive():
            x: int8 = pipe.get()

    check(top, "stream `pipe` carries int8, but float32 is put", "pipe.put")


def test_two_producers() -> None:
    @df.region()
    def top(A: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[2], args=[A])
        def send(a: int32[M]):
            pipe.put(a[0])  # here

        @df.kernel(mapping=[1])
        def receive():
            x: int32 = pipe.get()

    check(top, "stream `pipe` has two producers: send_0 and send_1", "pipe.put")


def test_two_consumers() -> None:
    @df.region()
    def top(A: int32[M]):
        pipe: Stream[int32, 2][2]

        @df.kernel(mapping=[2], args=[A])
        def send(a: int32[M]):
            i = df.get_pid()
            pipe[i].put(a[0])

        @df.kernel(mapping=[4])
        def receive():
            i = df.get_pid()
            x: int32 = pipe[i // 2].get()  # here

    check(top, "stream `pipe[0]` has two consumers: receive_0 and receive_1", "pipe[i // 2]")


def test_imbalance() -> None:
    @df.region(strict=True)
    def top(A: int32[128]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[128]):
            for i in range(128):
                pipe.put(a[i])  # here

        @df.kernel(mapping=[1])
        def receive():
            for i in range(120):
                x: int32 = pipe.get()

    check(top, "stream `pipe`: 128 puts, 120 gets", "pipe.put")


def test_imbalance_of_streams_indexed_by_loop_variables() -> None:
    @df.region(strict=True)
    def top(A: int32[M, N]):
        lanes: Stream[int32, 4][N]

        @df.kernel(mapping=[1], args=[A])
        def load(a: int32[M, N]):
            for i in range(M):
                for j in range(N):
                    lanes[j].put(a[i, j])  # here

        @df.kernel(mapping=[N])
        def lane():
            p = df.get_pid()
            for i in range(M - 1):
                x: int32 = lanes[p].get()

    check(top, "stream `lanes[0]`: 8 puts, 7 gets", "lanes[j].put")


def test_imbalance_per_task() -> None:
    @df.region()
    def top(A: int32[128]):
        pipe: Stream[int32, 2][4]

        @df.kernel(mapping=[4], args=[A])
        def send(a: int32[128]):
            p = df.get_pid()
            for i in range(p + 1):
                pipe[p].put(a[i])  # here

        @df.kernel(mapping=[4])
        def receive():
            p = df.get_pid()
            for i in range(max(2, p + 1)):
                x: int32 = pipe[p].get()

    error = check(top, "stream `pipe[0]`: 1 puts, 2 gets", "pipe[p].put")
    assert error.hint == "the last gets would wait for ever"


def test_read_but_never_written() -> None:
    @df.region()
    def top(A: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def receive(a: int32[M]):
            a[0] = pipe.get()  # here

    check(top, "stream `pipe` is read but never written", "pipe.get")


def test_stream_index_at_the_mesh_edge() -> None:
    @df.region()
    def top(A: int32[M]):
        pipe: Stream[int32, 2][3]

        @df.kernel(mapping=[4], args=[A])
        def core(a: int32[M]):
            i = df.get_pid()
            pipe[i].put(a[0])  # here

    error = check(top, "index 3 is out of range for dimension 0 of stream array `pipe`, of size 3", "pipe[i]")
    assert "core_3" in error.hint


def test_constant_index_out_of_range() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = a[8]  # here

    check(top, "index 8 is out of range for dimension 0 of size 8", "8")


def test_loop_index_out_of_range() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            for i in range(M):
                a[i] = a[i + 1]  # here

    check(top, "index 8 is out of range for dimension 0 of size 8", "i + 1")


def test_too_many_indices() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0, 1] = 0  # here

    check(top, "2 indices for a tile of shape [8]", "a[0, 1]")


def test_condition_must_be_constant() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            with allo.meta_if(a[0] > 0):  # here
                a[1] = 1

    error = check(top, "this condition must be known at compile time", "a[0] > 0")
    assert "`if`" in error.hint


def test_const_expr_must_be_constant() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            x: samples.ConstExpr[int32] = a[0]  # here

    check(top, "`x` is a ConstExpr, but its value is not known at compile time", "a[0]")


def test_mapping_must_be_positive() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[0], args=[A])  # here
        def core(a: int32[M]):
            pass

    check(top, "the extents of a mapping are positive integers, not 0", "[0]")


def test_elif_without_if() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            with allo.meta_else():  # here
                pass

    check(top, "meta_else without a meta_if before it", "with")


def test_constants_are_not_written_and_nothing_is_printed() -> None:
    @df.region()
    def writes(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            y = [1, 2, 3]
            y[0] = a[0]  # here

    @df.region()
    def prints(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            print(a[0])  # here

    assert "int32[3]" in check(writes, "a constant cannot be written", "y[0]").hint
    check(prints, "kernels cannot print", "print")


@pytest.mark.parametrize("how", ["assigned", "increased", "declared", "looped"])
def test_variables_of_loops_are_not_redefined(how: str) -> None:
    @df.region()
    def assigned(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            for i in range(M):
                if a[i] > 0:
                    i = 3  # here

    @df.region()
    def increased(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            for i, j in allo.grid(M, M):
                j += 1  # here

    @df.region()
    def declared(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            with allo.meta_for(M) as i:
                i: int32 = a[0]  # here

    @df.region()
    def looped(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            for i in range(M):
                for i in range(2):  # here
                    a[i] = 1

    region = {"assigned": assigned, "increased": increased, "declared": declared, "looped": looped}[how]
    name = "j" if how == "increased" else "i"
    error = check(region, f"`{name}` is the variable of a loop around this", name)
    assert error.hint == "use another name"


def recursive(x: int32) -> int32:
    return recursive(x - 1)  # here


def test_recursion() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = recursive(a[1])

    check(top, "recursion is not supported: recursive -> recursive", "recursive(x - 1)")


@pytest.mark.parametrize("statement", ["try", "del", "@"])
def test_unsupported_statements(statement: str) -> None:
    @df.region()
    def with_try(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            try:  # here
                a[0] = 1
            finally:
                a[0] = 2

    @df.region()
    def with_del(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            x: int32 = a[0]
            del x  # here

    @df.region()
    def with_decorator(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            @df.kernel(mapping=[1])  # here
            def inner(x: int32):
                pass

    region, message, at = {
        "try": (with_try, "`try` is not supported in kernels", "try"),
        "del": (with_del, "`delete` is not supported in kernels", "del"),
        "@": (with_decorator, "a function inside a kernel has no decorators", "df.kernel"),
    }[statement]
    check(region, message, at)


@pytest.mark.parametrize("form", ["walrus", "try_get", "list", "scatter"])
def test_values_of_streams_where_they_cannot_stand(form: str) -> None:
    @df.region()
    def walrus(A: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = (x := pipe.get()) + x  # here

    @df.region()
    def try_get(A: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = pipe.try_get()  # here

    @df.region()
    def in_list(A: int32[M]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            got = [pipe.get() for _ in range(M)]
            for i in range(M):
                a[i] = got[i]  # here

    @df.region()
    def scatter(A: int32[M]):
        pipe: Stream[int32, 2][N]

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            df.scatter(a, pipe)  # here

    region, message, at, hint = {
        "walrus": (
            walrus,
            "this expression is not supported on run-time values",
            "x := pipe",
            "assign in a statement of its own",
        ),
        "try_get": (try_get, "expected a scalar here, not 2 values", "a[0] =", "take them apart: a, b = ..."),
        "list": (in_list, "this cannot be indexed", "got[i]", "declare an array, x: int32[8], and set its elements"),
        "scatter": (scatter, "does not divide into 4 tokens", "df.scatter", "its shape must be [4]"),
    }[form]
    assert check(region, message, at).hint == hint


@df.region()
def returns_sometimes(A: int32[M]):
    @df.kernel(mapping=[1], args=[A])
    def core(a: int32[M]):
        def inner(x: int32) -> int32:
            if x > 0:
                return x  # the other path returns nothing

        a[0] = inner(a[1])  # here


def test_a_function_that_returns_on_one_path_only() -> None:
    error = check(returns_sometimes, "`inner` does not return a value on every path", "inner(a[1])")
    assert "outside of conditions" in error.hint


def test_recursion_of_a_local_function() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            def inner(x: int32) -> int32:
                return inner(x - 1)  # here

            a[0] = inner(a[1])

    check(top, "recursion is not supported: inner -> inner", "inner(x - 1)")


def test_computation_in_region() -> None:
    @df.region()
    def top(A: int32[M]):
        A[0] = 1  # here

        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            pass

    check(top, "a region contains only stream declarations and kernels", "A[0]")


def test_argument_count() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M]):  # here
            pass

    check(top, "kernel `core` has 1 parameters, but args lists 2 arguments", "def core")


def test_argument_type() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int8[M]):  # here
            pass

    check(top, "`a` is declared as int8[8], but `A` is int32[8]", "a: int8")


def test_scalar_where_tile_is_needed() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            x: int32 = a  # here

    check(top, "expected a scalar here", "x: int32")


def test_untyped_function_on_run_time_values() -> None:
    def double(x: Any) -> Any:
        return x * 2

    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = double(a[1])  # here

    error = check(top, "`double` cannot be called on run-time values", "double(a[1])")
    assert "x: int32" in error.hint


def called(name: str) -> Any:
    @df.region()
    def of_python(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = pow(a[1], 3)  # here

    @df.region()
    def misspelt(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[:] = allo.rellu(a)  # here

    @df.region()
    def summed(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            a[0] = sum(a[i] for i in range(M))  # here

    @df.region()
    def printed(A: int32[M]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[M]):
            print(f"first: {a[0]}")  # here

    return {"of_python": of_python, "misspelt": misspelt, "summed": summed, "printed": printed}[name]


@pytest.mark.parametrize(
    ("name", "message", "at", "hint"),
    [
        ("of_python", "`pow` cannot be called on run-time values", "pow", "allo.power computes it in kernels"),
        ("misspelt", "`allo` has no attribute `rellu`", "allo.rellu", "did you mean `relu`?"),
        ("summed", "this expression is not supported on run-time values", "(a[i]", "set its elements in a loop"),
        ("printed", "this expression is not supported on run-time values", 'f"first', "kernels know no texts"),
    ],
)
def test_what_to_write_instead(name: str, message: str, at: str, hint: str) -> None:
    assert hint in check(called(name), message, at).hint


def test_parameters_of_the_builder() -> None:
    with pytest.raises(ProgramError, match="cannot call `gemm` with parameters"):
        compile_region(samples.gemm, {"Pq": 3})
    with pytest.raises(ProgramError, match="returns no region"):
        compile_region(lambda_free_builder)
    with pytest.raises(ProgramError, match="cannot call `<lambda>` with parameters"):
        compile_region(lambda P: samples.gemm(Pm=P), {"Pq": 3})
    with pytest.raises(ProgramError, match="`<lambda>` raised KeyError: 'Pq'"):
        compile_region(lambda **given: samples.gemm(Pm=given["Pq"]), {"P": 3})
    with pytest.raises(ProgramError, match="`<lambda>` returns no region"):
        compile_region(lambda: None)


def copies(N: int = 8) -> Any:
    def copy(X: int32[N], Y: int32[N]) -> None:
        Y[:] = X

    return copy


def test_a_builder_may_return_a_plain_function() -> None:
    """`N` is named in annotations only, so that it is not in the function's closure."""
    for size in (8, 5):
        program = compile_region(copies, {"N": size})
        assert (program.name, [tensor.shape for tensor in program.tensors]) == ("copies", [(size,)] * 2)


def lambda_free_builder() -> None:
    """Not a builder at all."""


def test_warnings() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M], C: int32[M]):
        pipe: Stream[int32, 2]
        idle: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M], b: int32[M]):
            pipe.put(a[0])

    texts = [w.split("warning: ")[1] for w in compile_region(top).warnings]
    assert texts == [
        "stream `pipe` is never read",
        "stream `idle` is never used",
        "argument `b` of kernel `core` is never used",
        "argument `C` of region `top` is never used",
    ]


def test_a_region_is_decorated_once() -> None:
    with pytest.raises(ProgramError, match=r"stands above a function, not <region top>"):

        @df.region()
        @df.region()
        def top(A: int32[M]):
            pass


def test_what_only_stands_in_functions() -> None:
    @df.region()
    def top(A: int32[M]):
        @df.kernel(mapping=[(yield)], args=[A])  # here
        def core(a: int32[M]):
            a[0] = 1

    check(top, "this cannot stand here: 'yield' outside function", "")
