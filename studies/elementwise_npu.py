"""Elementwise operations on a Ryzen AI NPU, bfloat16: nothing is used twice, so DRAM or the function is the limit.

    allo-tune studies/elementwise_npu.py                                   # C = A + B, 2^20 elements, on npu2
    allo-tune studies/elementwise_npu.py --set op=gelu --set length=65536  # or relu, silu, silu_mul, cast
    allo-tune studies/elementwise_npu.py --set op=relu --set device=npu1_4col

A task has one tile. `silu_mul` is what a gated feed-forward layer does between its products: silu(gate) * up. Allo has
no code for GELU, and its compiler aborts where a tile changes its type: these two are written with what it has. With
`--set target=model` they are the vendor's kernels, which were measured.
"""

import math

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, float32
from allo.memory import Layout

import allo_dse as dse

S = Layout.Shard
GELU = -2 * math.sqrt(2 / math.pi)  # x / (1 + exp(GELU * u)) is x * (1 + tanh(-GELU / 2 * u)) / 2


def add(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(A: Ty[N], B: Ty[N], C: Ty[N]):
        @df.kernel(mapping=[P], args=[A, B, C])
        def core(a: Ty[N] @ [S(0)], b: Ty[N] @ [S(0)], c: Ty[N] @ [S(0)]):
            c[:] = allo.add(a, b)

    return top


def relu(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(X: Ty[N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[N] @ [S(0)], y: Ty[N] @ [S(0)]):
            y[:] = allo.relu(x)

    return top


def gelu(N=1048576, P=512, Ty=bfloat16):
    Nt = N // P

    @df.region()
    def top(X: Ty[N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[N] @ [S(0)], y: Ty[N] @ [S(0)]):
            inner: Ty[Nt] = allo.mul(x, allo.add(allo.mul(allo.mul(x, x), 0.044715), 1.0))
            y[:] = allo.div(x, allo.add(allo.exp(allo.mul(inner, GELU)), 1.0))

    return top


def silu(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(X: Ty[N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[N] @ [S(0)], y: Ty[N] @ [S(0)]):
            y[:] = allo.div(x, allo.add(allo.exp(allo.mul(x, -1.0)), 1.0))

    return top


def silu_mul(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(Gate: Ty[N], Up: Ty[N], Out: Ty[N]):
        @df.kernel(mapping=[P], args=[Gate, Up, Out])
        def core(gate: Ty[N] @ [S(0)], up: Ty[N] @ [S(0)], out: Ty[N] @ [S(0)]):
            out[:] = allo.mul(allo.div(gate, allo.add(allo.exp(allo.mul(gate, -1.0)), 1.0)), up)

    return top


def cast(N=1048576, P=512, TyI=float32, TyO=bfloat16):
    Nt = N // P

    @df.region()
    def top(X: TyI[N], Y: TyO[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: TyI[N] @ [S(0)], y: TyO[N] @ [S(0)]):
            for i in range(Nt):
                y[i] = x[i]

    return top


def gelu_kernel(N=1048576, P=512, Ty=bfloat16):
    @df.region()
    def top(X: Ty[N], Y: Ty[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: Ty[N] @ [S(0)], y: Ty[N] @ [S(0)]):
            y[:] = allo.gelu(x)

    return top


def cast_kernel(N=1048576, P=512, TyI=float32, TyO=bfloat16):
    @df.region()
    def top(X: TyI[N], Y: TyO[N]):
        @df.kernel(mapping=[P], args=[X, Y])
        def core(x: TyI[N] @ [S(0)], y: TyO[N] @ [S(0)]):
            y[:] = x

    return top


def _silu(x):
    return x / (1 + np.exp(-x))


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(np.float32(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))


PROGRAMS = {"add": add, "relu": relu, "gelu": gelu, "silu": silu, "silu_mul": silu_mul, "cast": cast}
KERNELS = {**PROGRAMS, "gelu": gelu_kernel, "cast": cast_kernel}
"""With kernels that the vendor has and Allo does not take."""
REFERENCES = {
    "add": lambda A, B: A + B,
    "relu": lambda X: np.maximum(X, 0),
    "gelu": _gelu,
    "silu": _silu,
    "cast": lambda X: X,
    "silu_mul": lambda Gate, Up: _silu(Gate) * Up,
}


def study(op: str = "add", length: int = 1048576, device: str = "npu2", target: str = "allo") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        f"{op}_npu",
        program=(PROGRAMS if target == "allo" else KERNELS)[op],
        params={"N": length, "P": dse.divisors(length, at_least=max(1, length // 4096), at_most=length // 128)},
        device=device,
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=REFERENCES[op],
        verify_with=lambda p: {"N": 4 * p["P"]},
    )
