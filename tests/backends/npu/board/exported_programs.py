"""Programs whose files have what exports must leave out, bring along or write differently for Allo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int16, int32
from allo.memory import Layout

import allo_dse as dse
from tests.support.exported_sizes import HALF, sizes

if TYPE_CHECKING:
    from pathlib import Path

S, R = Layout.Shard, Layout.Replicate
LIMIT: int = 3
TABLE: dict[str, Callable[..., object]] = {}


@dataclass
class Sizes:
    """A shape with a name."""

    rows: int = 64
    half: float = HALF

    def tiles(self, of: dse.Device | None = None) -> int:
        return self.rows // 8


def annotated(M: int = 64, *more: dse.Parameter, Ty: Any = int16, device: dse.Device | None = None) -> Any:
    Mt: int = M // 8
    unused: Path  # noqa: F842

    @df.region()
    def top(A: Ty[M], B: Ty[M]):
        @df.kernel(mapping=[8], args=[A, B])
        def core(a: Ty[M] @ [S(0)], b: Ty[M] @ [S(0)]):
            for i in range(Mt):
                b[i] = a[i] + LIMIT

    return top


def with_class(Ty=int32):
    own = Sizes()
    M, P = own.rows, own.tiles()

    @df.region()
    def top(A: Ty[M], B: Ty[M]):
        @df.kernel(mapping=[P], args=[A, B])
        def core(a: Ty[M] @ [S(0)], b: Ty[M] @ [S(0)]):
            b[:] = allo.add(a, 1)

    return top


def whole_shape(transposed: bool = False, Ty=int16):
    shape = sizes(2)

    @df.region()
    def top(A: Ty[shape], B: Ty[shape]):
        @df.kernel(mapping=[4], args=[A, B])
        def core(a: Ty[shape] @ [S(0), R], b: Ty[shape] @ [S(0), R]):
            b[:, :] = a

    return top


def branches(op: str = "copy", Ty=int16):
    rows = op == "row"
    shape = (32,) if rows else (32, 32)
    layout = [S(0)] if rows else [S(0), R]

    @df.region()
    def top(A: Ty[shape], B: Ty[shape]):
        links: Stream[Ty[8], 2][3]

        @df.kernel(mapping=[4], args=[A, B])
        def core(a: Ty[shape] @ layout, b: Ty[shape] @ layout):
            p = df.get_pid()
            with allo.meta_if(rows):
                for i in range(8):
                    b[i] = a[i] + 1
            with allo.meta_elif(op == "copy"):
                with allo.meta_if(op == "copy" and rows):
                    b[:] = a
                with allo.meta_elif(p > 0):
                    b[:, :] = a
                with allo.meta_elif(LIMIT == 3):
                    b[:, :] = allo.add(a, 1)
                with allo.meta_else():
                    b[:] = links[0].get()
            with allo.meta_else():
                b[:] = a @ a

    return top
