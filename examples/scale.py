"""The program of the examples: each of 64 tasks scales a row, on an FPGA or an NPU."""

from typing import Any

from allo_dse.lang import install

install()  # where Allo is not installed, `import allo` is ours

import allo.dataflow as df  # noqa: E402
from allo.ir.types import float32  # noqa: E402
from allo.memory import Layout  # noqa: E402

import allo_dse as dse  # noqa: E402

ROWS = [Layout.Shard(0), Layout.Replicate]


def scale(P: int = 16) -> Any:
    @df.region()
    def top(X: float32[64, 32], Y: float32[64, 32]):
        @df.kernel(mapping=[P], args=[X, Y])
        def scaled(x: float32[64, 32] @ ROWS, y: float32[64, 32] @ ROWS):
            for i in range(64 // P):
                for j in range(32):
                    y[i, j] = x[i, j] * 3.0

    return top


def study(**settings: Any) -> dse.Study:
    """A small study that the examples change in one place each."""
    declared: dict[str, Any] = {
        "program": scale,
        "params": {"P": dse.powers_of_two(2, 16)},
        "device": "u280",
        "schedules": "auto",
        "objectives": [dse.minimize("latency_cycles"), dse.minimize("dsp")],
        "reference": lambda X: X * 3.0,
    }
    return dse.Study("scale", **{**declared, **settings})
