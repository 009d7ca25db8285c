"""The program of docs/tutorial.md: a dense layer, relu(X @ W), as tiles on a Ryzen AI NPU, and its study."""

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import int16
from allo.memory import Layout

import allo_dse as dse


def reference(X, W):
    return np.maximum(X @ W, 0)


S, R = Layout.Shard, Layout.Replicate


def dense(M, N, K, Pm, Pn):
    @df.region()
    def top(X: int16[M, K], W: int16[K, N], Y: int16[M, N]):
        @df.kernel(mapping=[Pm, Pn], args=[X, W, Y])
        def tile(x: int16[M, K] @ [S(0), R], w: int16[K, N] @ [R, S(1)], y: int16[M, N] @ [S(0), S(1)]):
            y[:, :] = allo.relu(allo.matmul(x, w))

    return top


def study(size: int = 512, device: str = "npu1_4col") -> dse.Study:
    """A dense layer, size x size x 64."""
    return dse.Study(
        "dense",
        program=dense,
        params={
            "M": size,
            "N": size,
            "K": 64,
            "Pm": dse.divisors(size, at_least=size // 64, at_most=size // 8),
            "Pn": dse.divisors(size, at_least=size // 64, at_most=size // 8),
        },
        device=device,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"M": 4 * p["Pm"], "N": 4 * p["Pn"], "K": 8},
    )


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X, W = (rng.integers(-8, 8, shape, dtype=np.int16) for shape in ((16, 8), (8, 16)))
    Y = np.zeros((16, 16), np.int16)
    df.build(dense(16, 16, 8, 2, 2))(X, W, Y)
    assert np.array_equal(Y, reference(X, W))
    print("the program computes what NumPy does")
