"""A bottleneck layer of ResNet on a Ryzen AI NPU: 1x1, 3x3 and 1x1 convolution, and the input added to the result.

    allo-tune studies/resnet_npu.py                             # 8 images of 32 x 32, 256 channels, 64 inside, int8
    allo-tune studies/resnet_npu.py --set images=16

Rows of an image stream through three kernels. The 3x3 convolution keeps three rows and has its output channels
distributed over tasks. How many images are worked on side by side, how many cores each convolution gets, and which
share cores, is what the study searches.
"""

from pathlib import Path

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, int8
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate
DEVICE = Path(__file__).parent / "npu1_five_buffers.toml"


def bottleneck(B=8, H=32, W=32, C=256, N=64, P=4, Ty=int8):
    Nt = N // P

    def convolve(window: Ty[3, W + 2, N], weights: Ty[3, 3, N, Nt]) -> Ty[W, Nt]:
        total: Ty[W, Nt] = 0
        with allo.meta_for(3) as i:
            with allo.meta_for(3) as j:
                total[:, :] = allo.add(total, allo.matmul(window[i, j : j + W, :], weights[i, j, :, :]))
        activated: Ty[W, Nt] = allo.relu(total)
        return activated

    @df.region()
    def top(X: Ty[B, H, W, C], W1: Ty[C, N], W2: Ty[3, 3, N, N], W3: Ty[N, C], Y: Ty[B, H, W, C]):
        rows: Stream[Ty[W, N], 2][B, P, H]
        features: Stream[Ty[W, Nt], 2][B, P, H]

        @df.kernel(mapping=[B, H], args=[X, W1])
        def conv1(local_X: Ty[B, H, W, C] @ [S(0), S(1), R, R], local_W1: Ty[C, N] @ [R, R]):
            b, h = df.get_pid()
            row: Ty[W, N] = allo.relu(allo.matmul(local_X[0, 0, :, :], local_W1))
            with allo.meta_for(P) as p:
                rows[b, p, h].put(row)

        @df.kernel(mapping=[B, P], args=[W2])
        def conv2(local_W2: Ty[3, 3, N, N] @ [R, R, R, S(1)]):
            b, p = df.get_pid()
            window: Ty[3, W + 2, N] = 0
            window[2, 1 : W + 1, :] = rows[b, p, 0].get()
            for h in range(1, H):
                window[0, :, :] = window[1, :, :]
                window[1, :, :] = window[2, :, :]
                window[2, 1 : W + 1, :] = rows[b, p, h].get()
                features[b, p, h - 1].put(convolve(window, local_W2))
            window[0, :, :] = window[1, :, :]
            window[1, :, :] = window[2, :, :]
            window[2, :, :] = 0
            features[b, p, H - 1].put(convolve(window, local_W2))

        @df.kernel(mapping=[B, H], args=[W3, X, Y])
        def conv3(
            local_W3: Ty[N, C] @ [R, R],
            local_X: Ty[B, H, W, C] @ [S(0), S(1), R, R],
            local_Y: Ty[B, H, W, C] @ [S(0), S(1), R, R],
        ):
            b, h = df.get_pid()
            inner: Ty[W, N]
            with allo.meta_for(P) as p:
                inner[:, p * Nt : (p + 1) * Nt] = features[b, p, h].get()
            wide: Ty[W, C] = allo.matmul(inner, local_W3)
            local_Y[0, 0, :, :] = allo.relu(allo.add(wide, local_X[0, 0, :, :]))

    return top


def reference(X, W1, W2, W3):
    def clip(values):  # the arithmetic of 8-bit registers
        return values.astype(np.int8)

    inside = np.maximum(clip(X.astype(np.int64) @ W1.astype(np.int64)), 0).astype(np.int64)
    height, width = X.shape[1:3]
    padded = np.pad(inside, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (padded[:, i : i + height, j : j + width] @ W2[i, j].astype(np.int64) for i in range(3) for j in range(3))
    features = np.maximum(clip(sum(taps)), 0)
    return np.maximum(clip(features.astype(np.int64) @ W3.astype(np.int64) + X), 0)


def study(images: int = 8, device: str = str(DEVICE)) -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "resnet_npu",
        program=bottleneck,
        params={"B": images, "P": dse.choices([2, 4, 8], ordered=True)},
        device=device,
        target="model",  # Allo moves vectors and matrices only, and compiles no functions that kernels call
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=reference,
        verify_with=lambda p: {"W": 4, "C": 8, "N": 2 * p["P"]},
    )
