"""Five Allo designs whose HLS reports are public (xcvu11p, 10 ns, Vitis HLS), written in this project's language.

The figures are those of the reports; what reports state as a loop's latency is that of its module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32

from allo_dse.compiler.program.compiled import Directive

N = 64


def elements() -> Any:
    """GEMM, a stream of elements, ReLU."""

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], D: float32[N, N]):
        pipe: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[A, B])
        def gemm(a: float32[N, N], b: float32[N, N]):
            for i, j in allo.grid(N, N):
                acc: float32 = 0
                for k in range(N):
                    acc += a[i, k] * b[k, j]
                pipe.put(acc)

        @df.kernel(mapping=[1], args=[D])
        def relu(d: float32[N, N]):
            for i, j in allo.grid(N, N):
                v: float32 = pipe.get()
                d[i, j] = v if v > 0 else 0

    return top


def rows() -> Any:
    """GEMM row by row, a stream of rows, ReLU."""

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], D: float32[N, N]):
        pipe: Stream[float32[N], 4]

        @df.kernel(mapping=[1], args=[A, B])
        def gemm(a: float32[N, N], b: float32[N, N]):
            for i in range(N):
                row: float32[N] = 0
                for k in range(N):
                    for j in range(N):
                        row[j] += a[i, k] * b[k, j]
                pipe.put(row)

        @df.kernel(mapping=[1], args=[D])
        def relu(d: float32[N, N]):
            for i in range(N):
                row: float32[N] = pipe.get()
                for j in range(N):
                    d[i, j] = row[j] if row[j] > 0 else 0

    return top


def products() -> Any:
    """Two products, a stream of rows between them."""

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], C: float32[N, N], D: float32[N, N]):
        pipe: Stream[float32[N], 4]

        @df.kernel(mapping=[1], args=[A, B])
        def first(a: float32[N, N], b: float32[N, N]):
            for i in range(N):
                row: float32[N] = 0
                for k in range(N):
                    for j in range(N):
                        row[j] += a[i, k] * b[k, j]
                pipe.put(row)

        @df.kernel(mapping=[1], args=[C, D])
        def second(c: float32[N, N], d: float32[N, N]):
            for i in range(N):
                left: float32[N] = pipe.get()
                row: float32[N] = 0
                for k in range(N):
                    for j in range(N):
                        row[j] += left[k] * c[k, j]
                for j in range(N):
                    d[i, j] = row[j]

    return top


def single() -> Any:
    """One function: GEMM, then ReLU."""

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], D: float32[N, N]):
        @df.kernel(mapping=[1], args=[A, B, D])
        def gemm(a: float32[N, N], b: float32[N, N], d: float32[N, N]):
            c: float32[N, N] = 0
            for k in range(N):
                for i in range(N):
                    for j in range(N):
                        c[i, j] += a[i, k] * b[k, j]
            for i, j in allo.grid(N, N):
                d[i, j] = c[i, j] if c[i, j] > 0 else 0

    return top


def pipeline(kernel: str, loop: str) -> Directive:
    """Pipeline a loop with an interval of one."""
    return Directive("pipeline", kernel, loop, {"initiation_interval": 1})


@dataclass(frozen=True)
class Reported:
    """A design and its report.

    Attributes:
        loops: (trips, II, depth, cycles) of the loops that the report lists.
        cycles, bram18, dsp, ff, lut: of the top function. rtl: cycles of the RTL simulation, where it is public.
    """

    name: str
    program: Callable[[], Any]
    schedule: tuple[Directive, ...]
    loops: tuple[tuple[int, int, int, int], ...]
    cycles: int
    bram18: int
    dsp: int
    ff: int
    lut: int
    rtl: int | None = None


DESIGNS = (
    Reported(
        "elements",
        elements,
        (pipeline("relu", "j"),),
        ((4096, 32, 196, 131_237), (4096, 1, 3, 4_099)),
        *(139_580, 221, 10, 14_728, 14_776, 139_641),
    ),
    Reported(
        "elements, k pipelined",
        elements,
        (pipeline("gemm", "k"), pipeline("relu", "j")),
        ((262_144, 2, 7, 524_294), (4096, 1, 3, 4_099)),
        *(532_637, 219, 3, 8_826, 10_564),
    ),
    Reported(
        "rows",
        rows,
        (pipeline("gemm", "j"), pipeline("relu", "j")),
        ((64, 1, 2, 66), (4096, 1, 7, 4_103), (64, 1, 3, 67)),
        *(275_667, 222, 5, 8_935, 10_564),
    ),
    Reported(
        "two products",
        products,
        (pipeline("first", "j"), pipeline("second", "j")),
        ((64, 1, 2, 66), (4096, 1, 7, 4_103)),
        *(279_771, 297, 10, 12_079, 14_049, 283_621),
    ),
    Reported(
        "one function",
        single,
        (pipeline("gemm", "j"),),
        ((4096, 1, 2, 4_098), (262_144, 1, 7, 262_151), (4096, 1, 3, 4_099)),
        *(274_594, 206, 5, 8_612, 10_247),
    ),
)


def row_products() -> Any:
    """The first product of an Allo 2mm: rows of sums in registers, k pipelined, j unrolled."""
    rows, columns, inner = 180, 190, 210

    @df.region()
    def top(A: float32[rows, inner], B: float32[inner, columns], C: float32[rows, columns]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def mm(a: float32[rows, inner], b: float32[inner, columns], c: float32[rows, columns]):
            row: float32[columns]
            for i in range(rows):
                for j0 in range(columns):
                    row[j0] = 0.0
                for k in range(inner):
                    for j in range(columns):
                        row[j] += a[i, k] * b[k, j]
                for j1 in range(columns):
                    c[i, j1] = row[j1]

    return top


def _banks(scope: str, array: str, dim: int, factor: int) -> Directive:
    return Directive("partition", scope, array, {"dim": dim, "factor": factor, "partition_type": "cyclic"})


@dataclass(frozen=True)
class ReportedLoops:
    """Loops of reports in `csynth/` (xcu280, 3.33 ns) whose source is known well enough to be written again.

    Attributes:
        loops: (innermost name in our program, trips, II, depth, DSPs where the loop has a module of its own).
        reordered: additions of which each waits for the one before it in our program, but not in the report, whose tool
            may reorder float sums.
    """

    name: str
    program: Callable[[], Any]
    schedule: tuple[Directive, ...]
    loops: tuple[tuple[str, int, int, int, int | None], ...]
    reordered: int = 0


def _gemm() -> Any:
    from studies.polybench_fpga import gemm

    return gemm(P=1)


def convolution() -> Any:
    """The first convolution of a residual block: sums in a memory, begun anew under a condition.

    The report's tool may reorder float sums and adds the two products of a round before it adds them to the sum.
    """

    @df.region()
    def top(A: float32[16, 58, 58], W: float32[16, 16, 3, 3], C: float32[16, 56, 56]):
        @df.kernel(mapping=[1], args=[A, W, C])
        def conv(a: float32[16, 58, 58], w: float32[16, 16, 3, 3], c: float32[16, 56, 56]):
            for o, y, x, n in allo.grid(8, 28, 56, 8):
                for u in range(3):
                    for v in range(3):
                        for p in range(2):
                            for q in range(2):
                                if n == 0 and u == 0 and v == 0:
                                    c[2 * o + p, 2 * y + q, x] = 0.0
                                left: float32 = a[2 * n, 2 * y + q + u, x + v] * w[2 * o + p, 2 * n, u, v]
                                right: float32 = a[2 * n + 1, 2 * y + q + u, x + v] * w[2 * o + p, 2 * n + 1, u, v]
                                c[2 * o + p, 2 * y + q, x] += left + right

    return top


def outer_products() -> Any:
    """The main loop of a GEMM of outer products, with sums that begin anew under a condition."""

    @df.region()
    def top(A: float32[200, 240], B: float32[240, 220], C: float32[200, 220]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def gemm(a: float32[200, 240], b: float32[240, 220], c: float32[200, 220]):
            for k, i, j in allo.grid(24, 50, 20):
                for r in range(10):
                    for p in range(4):
                        for q in range(11):
                            if r + 10 * k == 0:
                                c[p + 4 * i, q + 11 * j] = 0.0
                            c[p + 4 * i, q + 11 * j] += a[p + 4 * i, r + 10 * k] * b[r + 10 * k, q + 11 * j]

    return top


LOOPS = (
    ReportedLoops(
        "Stream-HLS conv",
        convolution,
        (
            pipeline("conv", "v"),
            *(_banks("conv", name, dim, 2) for name in ("a", "w", "c") for dim in (1, 2)),
        ),
        (("v", 903_168, 7, 27, None),),
    ),
    ReportedLoops(
        "Stream-HLS gemm, reset",
        outer_products,
        (
            pipeline("gemm", "j"),
            *(_banks("gemm", name, 1, factor) for name, factor in (("a", 4), ("b", 10), ("c", 4))),
            *(_banks("gemm", name, 2, factor) for name, factor in (("a", 10), ("b", 11), ("c", 11))),
        ),
        (("j", 24_000, 1, 37, 2200),),
        reordered=10 - 4,  # a sum of ten products as a tree
    ),
    ReportedLoops(
        "Stream-HLS gemm",
        _gemm,
        (
            pipeline("gemm", "i"),
            Directive("unroll", "gemm", "i", {"factor": 2}),
            pipeline("gemm", "j1"),
            Directive("unroll", "gemm", "j1", {"factor": 44}),
            *(_banks("gemm", name, 2, 220) for name in ("acc", "b", "c", "d")),
            *(_banks("gemm", name, 1, 2) for name in ("acc", "a")),
        ),
        (("i", 24_000, 1, 37, 2200), ("j1", 1_000, 1, 15, 352)),
    ),
    ReportedLoops(
        "Allo 2mm",
        row_products,
        (
            pipeline("mm", "j0"),
            pipeline("mm", "k"),
            pipeline("mm", "j1"),
            _banks("mm", "row", 1, 190),
            _banks("mm", "b", 2, 190),
        ),
        (("j0", 190, 1, 1, 0), ("k", 210, 4, 14, 144), ("j1", 190, 1, 2, 0)),
    ),
)
