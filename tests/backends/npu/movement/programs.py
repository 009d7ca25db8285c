"""Programs whose tasks exchange tokens both ways."""

from __future__ import annotations

from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32
from allo.memory import Layout


def line(tasks: int, *, up_and_down: bool) -> Any:
    """Neighbours exchange numbers eight times: each with both of its own; or from the first to the last and back."""

    def program() -> Any:
        @df.region()
        def top(Y: int32[tasks]) -> None:
            right: Stream[int32, 2][tasks]
            left: Stream[int32, 2][tasks]

            @df.kernel(mapping=[tasks], args=[Y])
            def each(y: int32[tasks] @ [Layout.Shard(0)]) -> None:
                p = df.get_pid()
                own: int32 = p
                for _ in range(8):
                    there: int32 = 0
                    back: int32 = 0
                    with allo.meta_if(up_and_down and p > 0):
                        there = right[p].get()
                    with allo.meta_if(p < tasks - 1):
                        right[p + 1].put(own + there)
                    with allo.meta_if(not up_and_down and p > 0):
                        left[p - 1].put(own)
                        there = right[p].get()
                    with allo.meta_if(p < tasks - 1):
                        back = left[p].get()
                    with allo.meta_if(up_and_down and p > 0):
                        left[p - 1].put(own + back)
                    own = own + there + back
                y[0] = own

        return top

    return program


def relay(P=4, N=256):
    @df.region()
    def top(X: int32[N], Y: int32[N]):
        s: Stream[int32, 2][P + 1]

        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: int32[N], y: int32[N]):
            i = df.get_pid()
            for t in range(N):
                v: int32 = 0
                with allo.meta_if(i == 0):
                    v = x[t]
                with allo.meta_else():
                    v = s[i].get()
                with allo.meta_if(i == P - 1):
                    y[t] = v * 3
                with allo.meta_else():
                    s[i + 1].put(v * 3)

    return top
