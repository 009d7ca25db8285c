"""A GEMM for a coarse-grained reconfigurable array, which is a kind of device of its own.

    allo-tune examples/add_a_backend/gemm_cgra.py

The folder `cgra` adds the kind. Installed with pip, it is found by its entry point, and this import is not needed.
"""

from pathlib import Path

import allo
import allo.dataflow as df
import cgra  # noqa: F401
from allo.ir.types import Stream, int16
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard
DEVICE = str(Path(__file__).with_name("cgra_4x4.toml"))


def gemm(size=64, Pk=4, Pm=4, Pn=4):
    tile_m, tile_n = size // Pm, size // Pn

    @df.region()
    def top(A: int16[size, size], B: int16[size, size], C: int16[size, size]):
        sums: Stream[int16[tile_m, tile_n], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def product(
            a: int16[size, size] @ [S(1), S(0)],
            b: int16[size, size] @ [S(0), S(2)],
            c: int16[size, size] @ [S(1), S(2)],
        ):
            k, m, n = df.get_pid()
            before: int16[tile_m, tile_n]
            with allo.meta_if(k > 0):
                before[:, :] = sums[k - 1, m, n].get()
            with allo.meta_else():
                before[:, :] = 0
            after: int16[tile_m, tile_n] = allo.add(allo.matmul(a, b), before)
            with allo.meta_if(k < Pk - 1):
                sums[k, m, n].put(after)
            with allo.meta_elif(k == Pk - 1):
                c[:, :] = after

    return top


def study(size: int = 64) -> dse.Study:
    """The study that `allo-tune` runs."""
    tiles = dse.divisors(size, at_least=2, at_most=8)
    return dse.Study(
        "gemm_cgra",
        program=gemm,
        params={"size": size, "Pk": tiles, "Pm": tiles, "Pn": tiles},
        device=DEVICE,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda a, b: a @ b,
        trials=100,
    )


if __name__ == "__main__":
    result = study().run(trials=20, progress="quiet")
    print(result.pareto[["latency_us", "pe_count", "local_memory_bytes"]].to_string(index=False))
