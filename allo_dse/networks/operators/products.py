"""Products of matrices: C = A @ B, and of a matrix and a vector, with partial sums flowing along K."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout

from .elementwise import BINARY, GELU, UNARY, Floats, silu
from .execute import Work, tile_counts

S = Layout.Shard


def gemm(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, Ty=bfloat16):
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(1), S(0)], [S(0), S(2)], [S(1), S(2)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]):
        sums: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB, local_C: Ty[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            before: Ty[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: Ty[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), before)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_elif(pk == Pk - 1):
                local_C[:, :] = after

    return top


def gemv(M=2048, K=2048, Pm=256, Pk=1, Ty=bfloat16):
    """y = A @ x. Allo drops dimensions of a single element, and with them its matrix product's: it gets loops."""
    Mt, Kt = M // Pm, K // Pk
    LyA, Lyx, Lyy = [S(1), S(0)], [S(0)], [S(1)]

    @df.region()
    def top(A: Ty[M, K], x: Ty[K], y: Ty[M]):
        sums: Stream[float32[Mt], 2][Pk - 1, Pm]

        @df.kernel(mapping=[Pk, Pm], args=[A, x, y])
        def gemv(local_A: Ty[M, K] @ LyA, local_x: Ty[K] @ Lyx, local_y: Ty[M] @ Lyy):
            pk, pm = df.get_pid()
            before: float32[Mt]
            with allo.meta_if(pk > 0):
                before[:] = sums[pk - 1, pm].get()
            with allo.meta_else():
                before[:] = 0.0
            for i in range(Mt):
                total: float32 = before[i]
                for k in range(Kt):
                    total += local_A[i, k] * local_x[k]
                before[i] = total
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm].put(before)
            with allo.meta_elif(pk == Pk - 1):
                for i1 in range(Mt):
                    local_y[i1] = before[i1]

    return top


def gemv_work(rows: int, depth: int, element: object) -> Work:
    """[rows, depth] times a vector. A task has 2 to 32 rows; no core keeps more than 2,048 elements of one, twice."""
    return Work(
        "gemv",
        gemv,
        {
            **{"M": rows, "K": depth, "Ty": element},
            **{"Pm": tile_counts(rows, 2, 32), "Pk": tile_counts(depth, 512, 2048)},
        },
        np.matmul,
        lambda p: {"M": 2 * p["Pm"], "K": 16 * p["Pk"]},
    )


def gemm_work(rows: int, columns: int, depth: int, element: object) -> Work:
    """[rows, depth] times [depth, columns]."""
    return Work(
        "gemm",
        gemm,
        {
            **{"M": rows, "N": columns, "K": depth},
            **{"Pm": tile_counts(rows), "Pn": tile_counts(columns), "Pk": tile_counts(depth), "Ty": element},
        },
        np.matmul,
        lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 4 * p["Pk"]},
    )


# Fused programs: products and sums of matrices with elementwise operators after them. The first result stays on chip.


def gemm_unary(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, op="relu", Ty=bfloat16):
    """`op` of the product, where its last partial sum is made."""
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(1), S(0)], [S(0), S(2)], [S(1), S(2)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]):
        sums: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB, local_C: Ty[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            before: Ty[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: Ty[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), before)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_elif(op == "relu"):
                local_C[:, :] = allo.relu(after)
            with allo.meta_elif(op == "silu"):
                local_C[:, :] = allo.div(after, allo.add(allo.exp(allo.mul(after, -1.0)), 1.0))
            with allo.meta_else():
                inner: Ty[Mt, Nt] = allo.mul(after, allo.add(allo.mul(allo.mul(after, after), 0.044715), 1.0))
                local_C[:, :] = allo.div(after, allo.add(allo.exp(allo.mul(inner, GELU)), 1.0))

    return top


def gemm_then(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, op="add", then="", Ty=bfloat16):
    """`op` of the product and another matrix or a row, and `then` another function of that.

    It is a kernel of its own, as a core has no third channel for what comes in.
    """
    Mt, Nt = M // Pm, N // Pn
    rows = op == "add_row"
    shape, LyO = ((N,), [S(1)]) if rows else ((M, N), [S(0), S(1)])
    LyA, LyB, LyC = [S(1), S(0)], [S(0), S(2)], [S(0), S(1)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], Other: Ty[shape], C: Ty[M, N]):
        sums: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]
        products: Stream[Ty[Mt, Nt], 2][Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB):
            pk, pm, pn = df.get_pid()
            before: Ty[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: Ty[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), before)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_else():
                products[pm, pn].put(after)

        @df.kernel(mapping=[Pm, Pn], args=[Other, C])
        def finish(other: Ty[shape] @ LyO, local_C: Ty[M, N] @ LyC):
            pm, pn = df.get_pid()
            x: Ty[Mt, Nt] = products[pm, pn].get()
            y: Ty[Mt, Nt] = 0
            with allo.meta_if(op == "add_row"):
                for i, j in allo.grid(Mt, Nt):
                    y[i, j] = x[i, j] + other[j]
            with allo.meta_elif(op == "add"):
                y[:, :] = allo.add(x, other)
            with allo.meta_elif(op == "mul"):
                y[:, :] = allo.mul(x, other)
            with allo.meta_elif(op == "silu_mul"):
                y[:, :] = allo.mul(allo.div(x, allo.add(allo.exp(allo.mul(x, -1.0)), 1.0)), other)
            with allo.meta_else():
                y[:, :] = allo.mul(x, allo.div(other, allo.add(allo.exp(allo.mul(other, -1.0)), 1.0)))
            with allo.meta_if(then == ""):
                local_C[:, :] = y
            with allo.meta_elif(then == "relu"):
                local_C[:, :] = allo.relu(y)
            with allo.meta_elif(then == "silu"):
                local_C[:, :] = allo.div(y, allo.add(allo.exp(allo.mul(y, -1.0)), 1.0))
            with allo.meta_else():
                inner: Ty[Mt, Nt] = allo.mul(y, allo.add(allo.mul(allo.mul(y, y), 0.044715), 1.0))
                local_C[:, :] = allo.div(y, allo.add(allo.exp(allo.mul(inner, GELU)), 1.0))

    return top


def gemm_bias_add(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, then="", Ty=bfloat16):
    """The product and a row, and the sum of that and another matrix: a kernel for each, as each has its own input."""
    Mt, Nt = M // Pm, N // Pn
    LyA, LyB, LyC = [S(1), S(0)], [S(0), S(2)], [S(0), S(1)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], Row: Ty[N], Other: Ty[M, N], C: Ty[M, N]):
        sums: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]
        products: Stream[Ty[Mt, Nt], 2][Pm, Pn]
        biased: Stream[Ty[Mt, Nt], 2][Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB):
            pk, pm, pn = df.get_pid()
            before: Ty[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
            after: Ty[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), before)
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_else():
                products[pm, pn].put(after)

        @df.kernel(mapping=[Pm, Pn], args=[Row])
        def bias(row: Ty[N] @ [S(1)]):
            pm, pn = df.get_pid()
            x: Ty[Mt, Nt] = products[pm, pn].get()
            y: Ty[Mt, Nt] = 0
            for i, j in allo.grid(Mt, Nt):
                y[i, j] = x[i, j] + row[j]
            biased[pm, pn].put(y)

        @df.kernel(mapping=[Pm, Pn], args=[Other, C])
        def finish(other: Ty[M, N] @ LyC, local_C: Ty[M, N] @ LyC):
            pm, pn = df.get_pid()
            x: Ty[Mt, Nt] = biased[pm, pn].get()
            with allo.meta_if(then == "relu"):
                local_C[:, :] = allo.relu(allo.add(x, other))
            with allo.meta_else():
                local_C[:, :] = allo.add(x, other)

    return top


def add_relu(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(A: Ty[N], B: Ty[N], C: Ty[N]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(a: Ty[N] @ [S(0)], b: Ty[N] @ [S(0)], c: Ty[N] @ [S(0)]):
            c[:] = allo.relu(allo.add(a, b))

    return top


OPERAND: dict[str, Callable[[Floats, Floats], Floats]] = {
    "add": np.add,
    "add_row": np.add,
    "mul": np.multiply,
    "silu_mul": BINARY["silu_mul"],
    "mul_silu": lambda x, gate: x * silu(gate),
}
"""Functions of the product and a further input, by their names in `gemm_then`."""


def fused_work(work: Work, following: Work, position: int) -> Work | None:
    """Fuse two works into one program; None if there is none.

    It reads the inputs of `work`, then the other inputs of `following`.

    Args:
        position: of the result of `work` among the inputs of `following`.
    """
    if work.params.get("Ty") != following.params.get("Ty"):
        return None
    rows, columns, then = work.params.get("M"), work.params.get("N"), following.kind
    kind = f"{work.kind}_{then}"
    made = cast(Callable[..., Floats], work.reference)
    alike = {name: value for name, value in work.params.items() if name != "op"}
    if work.kind == "gemm_add_row" and then == "add":
        return Work(kind, gemm_bias_add, alike, lambda *given: made(*given[:3]) + given[3], work.verify_with)
    if work.kind in ("add", "gemm_add_row_add") and then == "relu":
        last = add_relu if work.kind == "add" else gemm_bias_add
        more = {} if work.kind == "add" else {"then": then}
        return Work(kind, last, {**alike, **more}, lambda *given: UNARY[then](made(*given)), work.verify_with)
    if work.kind in ("gemm", "gemm_add_row") and then in UNARY:
        program = gemm_unary if work.kind == "gemm" else gemm_then
        params = {**work.params, "op" if work.kind == "gemm" else "then": then}
        return Work(kind, program, params, lambda *given: UNARY[then](made(*given)), work.verify_with)
    if then == "silu_mul" and position == 1:
        then = "mul_silu"
    if work.kind != "gemm" or then not in OPERAND or (then == "add_row" and position == 1):
        return None
    if then == "add_row" and (following.params["M"], following.params["N"]) != (rows, columns):
        return None
    params = {**work.params, "op": then}
    return Work(kind, gemm_then, params, lambda A, B, other: OPERAND[then](made(A, B), other), work.verify_with)
