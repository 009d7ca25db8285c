"""A systolic array for integer GEMM on an FPGA: C = A @ B in int8, on 16 x 16 processing elements of a U280.

    allo-tune studies/systolic_fpga.py                       # every loader has its own rows: "plain"
    allo-tune studies/systolic_fpga.py --set feed=daisy      # one wide read per cycle, handed on from loader to loader

A and B flow through the array; each element keeps one sum and writes it when it is complete. How many elements there
are and how wide tensors are copied is what the study searches; stream depths are solved for each design.
"""

import allo
import allo.dataflow as df
from allo.ir.types import Stream, UInt, int8, int16
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard


def plain(M=512, N=512, K=2048, P=16):
    MT, NT = M // P, N // P

    @df.region()
    def top(A: int8[M, K], B: int8[N, K], C: int16[M, N]):
        right: Stream[int8, 4][P, P]
        down: Stream[int8, 4][P, P]

        @df.kernel(mapping=[P], args=[A])
        def load_a(a: int8[M, K] @ [S(0), Layout.Replicate]):
            i = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        right[i, 0].put(a[m, k])

        @df.kernel(mapping=[P], args=[B])
        def load_b(b: int8[N, K] @ [S(0), Layout.Replicate]):
            j = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        down[0, j].put(b[n, k])

        @df.kernel(mapping=[P, P], args=[C])
        def pe(c: int16[M, N] @ [S(0), S(1)]):
            i, j = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    acc: int16 = 0
                    for k in range(K):
                        x: int8 = right[i, j].get()
                        y: int8 = down[i, j].get()
                        acc += x * y
                        with allo.meta_if(j < P - 1):
                            right[i, j + 1].put(x)
                        with allo.meta_if(i < P - 1):
                            down[i + 1, j].put(y)
                    c[m, n] = acc

    return top


def daisy(M=512, N=512, K=2048, P=16):
    MT, NT, W = M // P, N // P, 8 * P

    @df.region()
    def top(A: int8[M, K], B: int8[N, K], C: int16[M, N]):
        rows: Stream[UInt(W), 4][P]
        columns: Stream[UInt(W), 4][P]
        right: Stream[int8, 4][P, P]
        down: Stream[int8, 4][P, P]

        @df.kernel(mapping=[1], args=[A])
        def read_a(a: int8[M, K]):
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        word: UInt(W) = 0
                        with allo.meta_for(P) as r:
                            word[8 * r : 8 * r + 8] = a[r * MT + m, k]
                        rows[0].put(word)

        @df.kernel(mapping=[1], args=[B])
        def read_b(b: int8[N, K]):
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        word: UInt(W) = 0
                        with allo.meta_for(P) as r:
                            word[8 * r : 8 * r + 8] = b[r * NT + n, k]
                        columns[0].put(word)

        @df.kernel(mapping=[P])
        def feed_a():
            i = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        word: UInt(W) = rows[i].get()
                        x: int8 = word[8 * i : 8 * i + 8]
                        right[i, 0].put(x)
                        with allo.meta_if(i < P - 1):
                            rows[i + 1].put(word)

        @df.kernel(mapping=[P])
        def feed_b():
            j = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    for k in range(K):
                        word: UInt(W) = columns[j].get()
                        y: int8 = word[8 * j : 8 * j + 8]
                        down[0, j].put(y)
                        with allo.meta_if(j < P - 1):
                            columns[j + 1].put(word)

        @df.kernel(mapping=[P, P], args=[C])
        def pe(c: int16[M, N] @ [S(0), S(1)]):
            i, j = df.get_pid()
            for m in range(MT):
                for n in range(NT):
                    acc: int16 = 0
                    for k in range(K):
                        x: int8 = right[i, j].get()
                        y: int8 = down[i, j].get()
                        acc += x * y
                        with allo.meta_if(j < P - 1):
                            right[i, j + 1].put(x)
                        with allo.meta_if(i < P - 1):
                            down[i + 1, j].put(y)
                    c[m, n] = acc

    return top


def study(feed: str = "plain", size: int = 512, depth: int = 2048, device: str = "u280") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    programs = {"plain": plain, "daisy": daisy}
    loaders = ("load_a", "load_b") if feed == "plain" else ("read_a", "read_b", "feed_a", "feed_b")
    banks = [dse.partition(tensor, 1, [16], kind="block") for tensor in "AB"] if feed == "daisy" else []
    return dse.Study(
        f"systolic_fpga_{feed}",
        program=programs[feed],
        params={"M": size, "N": size, "K": depth, "P": dse.powers_of_two(4, 16)},
        device=device,
        objectives=[dse.maximize("throughput_gops"), dse.minimize("dsp"), dse.minimize("bram18")],
        schedules=[
            *(dse.pipeline(f"{kernel}:k") for kernel in (*loaders, "pe")),
            *(dse.partition(tensor, 2, [8, 32]) for tensor in "AB"),
            dse.partition("C", 2, [1, 16]),
            *(dse.pack(tensor, [64, 512]) for tensor in "ABC"),
            *banks,
        ],
        reference=lambda A, B: A.astype("int16") @ B.astype("int16").T,
        verify_with=lambda p: {"M": 2 * p["P"], "N": 2 * p["P"], "K": 64},
        trials=150,
    )
