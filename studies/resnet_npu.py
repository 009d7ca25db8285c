"""A bottleneck layer of ResNet on a Ryzen AI NPU: 1x1, 3x3 and 1x1 convolution, and the input added to the result.

    allo-tune studies/resnet_npu.py                             # 2 images of 16 x 32, 256 channels, 64 inside, int8
    allo-tune studies/resnet_npu.py --set images=8 --set target=model

Rows of an image stream through three kernels. The 3x3 convolution keeps three rows and has its output channels
distributed over tasks. How many images are worked on side by side, how many cores each convolution gets, and which
share cores, is what the study searches. For target "model" the device is `npu1_five_buffers`, as a call takes one
buffer per tensor there.
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
TAPS = 9


def bottleneck(B=8, H=32, W=32, C=256, N=64, P=4, Q=1, Ty=int8):
    """A task of the 1x1 convolutions has a Qth of a row, one of the 3x3 convolution a Pth of the channels of an image.

    Images lie side by side in X and Y, the 3x3 taps below each other in W2, so that every tensor is a matrix, as Allo
    moves them. The window is three rows with their edges.
    """
    Nt, Wt, Wide = N // P, W // Q, W + 2
    LyX = [S(1), S(0)]

    @df.region()
    def top(X: Ty[H * W, B * C], W1: Ty[C, N], W2: Ty[TAPS * N, N], W3: Ty[N, C], Y: Ty[H * W, B * C]):
        rows: Stream[Ty[Wt, N], 2][B, P, H * Q]
        features: Stream[Ty[Wt, Nt], 2][B, P, H * Q]

        @df.kernel(mapping=[B, H * Q], args=[X, W1])
        def conv1(local_X: Ty[H * W, B * C] @ LyX, local_W1: Ty[C, N] @ [R, R]):
            b, h = df.get_pid()
            row: Ty[Wt, N] = allo.relu(allo.matmul(local_X, local_W1))
            with allo.meta_for(P) as p:
                rows[b, p, h].put(row)

        @df.kernel(mapping=[B, P], args=[W2])
        def conv2(local_W2: Ty[TAPS * N, N] @ [R, S(1)]):
            b, p = df.get_pid()
            window: Ty[3 * Wide, N] = 0
            with allo.meta_for(Q) as q:
                window[2 * Wide + 1 + q * Wt : 2 * Wide + 1 + (q + 1) * Wt, :] = rows[b, p, q].get()
            with allo.meta_for(H) as h:
                window[0:Wide, :] = window[Wide : 2 * Wide, :]
                window[Wide : 2 * Wide, :] = window[2 * Wide : 3 * Wide, :]
                with allo.meta_if(h < H - 1):
                    with allo.meta_for(Q) as q:
                        window[2 * Wide + 1 + q * Wt : 2 * Wide + 1 + (q + 1) * Wt, :] = rows[b, p, h * Q + Q + q].get()
                with allo.meta_else():
                    window[2 * Wide : 3 * Wide, :] = 0
                with allo.meta_for(Q) as q:
                    total: Ty[Wt, Nt] = 0
                    with allo.meta_for(TAPS) as t:
                        part: Ty[Wt, Nt] = allo.matmul(
                            window[t // 3 * Wide + t % 3 + q * Wt : t // 3 * Wide + t % 3 + (q + 1) * Wt, :],
                            local_W2[t * N : (t + 1) * N, :],
                        )
                        total[:, :] = allo.add(total, part)
                    features[b, p, h * Q + q].put(allo.relu(total))

        @df.kernel(mapping=[B, H * Q], args=[W3, X, Y])
        def conv3(local_W3: Ty[N, C] @ [R, R], local_X: Ty[H * W, B * C] @ LyX, local_Y: Ty[H * W, B * C] @ LyX):
            b, h = df.get_pid()
            inner: Ty[Wt, N]
            with allo.meta_for(P) as p:
                inner[:, p * Nt : (p + 1) * Nt] = features[b, p, h].get()
            wide: Ty[Wt, C] = allo.matmul(inner, local_W3)
            with allo.meta_for(C // Nt) as c:
                local_Y[:, c * Nt : (c + 1) * Nt] = allo.relu(
                    allo.add(wide[:, c * Nt : (c + 1) * Nt], local_X[:, c * Nt : (c + 1) * Nt])
                )

    return top


def reference(X, W1, W2, W3, images, height):
    """X: [height * width, images * channels]."""

    def clip(values):  # the arithmetic of 8-bit registers
        return values.astype(np.int8)

    X = X.reshape(height, -1, images, W1.shape[0])
    inside = np.maximum(clip(X.astype(np.int64) @ W1.astype(np.int64)), 0).astype(np.int64)
    width, channels = X.shape[1], inside.shape[-1]
    padded = np.pad(inside, ((1, 1), (1, 1), (0, 0), (0, 0)))
    kernel = W2.astype(np.int64).reshape(3, 3, channels, channels)
    taps = (padded[i : i + height, j : j + width] @ kernel[i, j] for i in range(3) for j in range(3))
    features = np.maximum(clip(sum(taps)), 0)
    result = np.maximum(clip(features.astype(np.int64) @ W3.astype(np.int64) + X), 0)
    return result.reshape(height * width, -1)


def study(images: int = 2, height: int = 16, device: str = "", target: str = "allo") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "resnet_npu",
        program=bottleneck,
        params={
            "B": images,
            "H": height,
            "P": dse.choices([2, 4, 8]),
            "Q": dse.choices([1, 2, 4]),
        },
        device=device or ("npu1_4col" if target == "allo" else DEVICE),
        target=target,
        objectives=[dse.minimize("latency_us"), dse.minimize("pe_count")],
        reference=lambda X, W1, W2, W3: reference(X, W1, W2, W3, images, height),
        verify_with=lambda p: {"W": 4, "C": 8, "N": 2 * p["P"]},
    )
