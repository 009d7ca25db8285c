"""Pooling: of the rows of a matrix, one below the other at the same place, the largest or the mean."""

from __future__ import annotations

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.space.params import divisors

from .work import Work

S, R = Layout.Shard, Layout.Replicate
LEAST_TILE, MOST_TILE = 16, 8192  # results of a task, elements that it reads
Floats = NDArray[np.float32]


def pool(taps=9, N=200704, P=512, op="max", Ty=bfloat16):
    Nt = N // P

    @df.region()
    def top(X: Ty[taps, N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[taps, N] @ [R, S(0)], y: Ty[N] @ [S(0)]):
            for i in range(Nt):
                found: float32 = x[0, i]
                for t in range(1, taps):
                    value: float32 = x[t, i]
                    with allo.meta_if(op == "max"):
                        if value > found:
                            found = value
                    with allo.meta_if(op == "mean"):
                        found += value
                with allo.meta_if(op == "max"):
                    y[i] = found
                with allo.meta_if(op == "mean"):
                    y[i] = found / taps

    return top


def pool_work(op: str, taps: int, size: int, element: object) -> Work:
    """ "max" or "mean" of so many rows of `size` elements."""
    most = max(1, MOST_TILE // taps)
    shares = divisors(size, at_least=-(-size // most), at_most=max(1, size // min(LEAST_TILE, most)))

    def reference(X: Floats) -> Floats:
        found: Floats = X.max(axis=0) if op == "max" else X.mean(axis=0)
        return found

    params = {"taps": taps, "N": size, "P": shares, "op": op, "Ty": element}
    return Work(f"{op}_pool", pool, params, reference, lambda p: {"N": 4 * p["P"]})
