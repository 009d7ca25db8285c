"""Convolution, pooling and batch normalization of ONNX: operators on images.

A convolution is a product: what lies under the kernel at every position, times the weights. Gathering it is a
rearrangement, which is free for kernels of one pixel. Pooling takes of it the largest or the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import replace

from ..operators.elementwise import pool_work, row_work
from .builder import Array, Builder
from .graph import Node

Index = NDArray[np.int64]


def conv(builder: Builder, node: Node) -> None:
    x, w, bias = (*node.inputs, "")[:3]
    weights = builder.graph.known.get(w)
    if weights is None or weights.ndim != 4 or builder.shape(x)[0] != 1:
        raise builder.refuse(node, "one image of two dimensions and known weights are known")
    if (groups := int(node.number("group", 1))) != 1:
        raise builder.refuse(node, f"{groups} groups; a convolution of all channels is known")
    kernel = _numbers(node, "kernel_shape", weights.shape[2:])
    if weights.shape[1:] != (builder.shape(x)[1], *kernel):
        raise builder.refuse(node, f"weights of {weights.shape} for an image of {builder.shape(x)}, kernel {kernel}")
    index = _windows(builder, node, kernel)
    under = builder.arranged(lambda one: _gathered(one, index).reshape(len(index), -1), builder.pixels(x))
    matrix = builder.known(weights.transpose(2, 3, 1, 0).reshape(-1, weights.shape[0]))
    builder.product(node, under, matrix, bias, output=builder.new_pixels(node))
    builder.made_pixels(node)


def pooling(op: str, whole: bool = False) -> Callable[[Builder, Node], None]:
    """Return a converter of nodes that reduce windows, or whole images, with `op`."""

    def convert(builder: Builder, node: Node) -> None:
        x = node.inputs[0]
        _, channels, height, width = _image(builder, node)
        index = np.arange(height * width)[None] if whole else _windows(builder, node, _numbers(node, "kernel_shape"))
        beside = index == height * width
        if beside.all(axis=1).any() or (op == "mean" and beside.any() and not node.number("count_include_pad", 0)):
            raise builder.refuse(node, f"a {op} over positions beside the image that do not count")
        if op == "max":  # positions beside the image repeat a pixel of the window
            index = np.where(beside, index.min(axis=1, keepdims=True), index)
        under = builder.arranged(lambda one: _gathered(one, index).swapaxes(0, 1), builder.pixels(x))
        work = pool_work(op, index.shape[1], len(index) * channels, builder.element)
        builder.net.add(
            work, under, name=node.name or node.output, output=builder.new_pixels(node), shape=(len(index), channels)
        )
        builder.made_pixels(node)

    return convert


def reduce_mean(builder: Builder, node: Node) -> None:
    axes = builder.graph.known.get(node.inputs[1]) if len(node.inputs) > 1 else np.array(_numbers(node, "axes"))
    if axes is None or sorted(axes) not in ([-2, -1], [2, 3]) or len(builder.shape(node.inputs[0])) != 4:
        raise builder.refuse(node, "a mean over other dimensions than those of images")
    pooling("mean", whole=True)(builder, node)


def batch_norm(builder: Builder, node: Node) -> None:
    """Convert a batch normalization; it becomes part of a convolution before it."""
    x, *names = node.inputs[:5]
    known, channels = builder.graph.known, builder.shape(x)[1:2]
    learned = node.number("training_mode", 0) or any(node.outputs[1:])
    if learned or any(name not in known or known[name].shape != channels for name in names):
        raise builder.refuse(node, "known weights and statistics of each channel are known")
    scale, bias, mean, variance = (known[name].astype(np.float32) for name in names)
    factor = scale / np.sqrt(variance + np.float32(node.number("epsilon", 1e-5)))
    before = builder.ours.get(x)
    if before is not None and before.op == "Conv" and all(name in known for name in before.inputs[1:]):
        image, w, *more = before.inputs
        own = known[more[0]].astype(np.float32) if more else np.float32(0)
        weights, plus = (builder.graph.new_name(f"{node.output}.{what}") for what in ("weights", "bias"))
        known[weights] = known[w] * factor[:, None, None, None]
        known[plus] = (own - mean) * factor + bias
        inputs = (image, weights, plus)
        return conv(builder, replace(before, name=node.name, inputs=inputs, output=node.output))
    _, count, height, width = _image(builder, node)
    rows = (row_work(op, height * width, count, builder.element) for op in ("mul", "add"))
    scaled = builder.part(node, next(rows), builder.pixels(x), builder.known(factor), kind="scaled")
    shift = builder.known(bias - mean * factor)
    builder.net.add(next(rows), scaled, shift, name=node.name or node.output, output=builder.new_pixels(node))
    builder.made_pixels(node)


def _image(builder: Builder, node: Node) -> tuple[int, ...]:
    shape = builder.shape(node.inputs[0])
    if len(shape) != 4 or shape[0] != 1:
        raise builder.refuse(node, f"{shape}; one image of two dimensions is known")
    return shape


def _numbers(node: Node, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    found = node.attributes.get(name, default)
    assert isinstance(found, Sequence)
    return tuple(int(one) for one in found)


def _windows(builder: Builder, node: Node, kernel: Sequence[int]) -> Index:
    """[positions, taps]: the pixels under the kernel; as many as there are in all where it leaves the image."""
    if node.attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or node.number("ceil_mode", 0):
        raise builder.refuse(node, "padding as numbers, and whole windows, are known")
    strides, steps = (_numbers(node, name, (1, 1)) for name in ("strides", "dilations"))
    pads, (height, width) = _numbers(node, "pads", (0, 0, 0, 0)), builder.shape(node.inputs[0])[2:]
    rows, columns = (
        _axis(size, kernel[axis], strides[axis], steps[axis], pads[axis], pads[axis + 2])
        for axis, size in enumerate((height, width))
    )
    if not (rows.size and columns.size):
        raise builder.refuse(node, f"a kernel of {tuple(kernel)} does not fit into {(height, width)}")
    row, column = rows[:, None, :, None], columns[None, :, None, :]
    found: Index = np.where((row < 0) | (column < 0), height * width, row * width + column)
    return found.reshape(-1, math.prod(kernel))


def _axis(size: int, kernel: int, stride: int, step: int, before: int, after: int) -> Index:
    """[positions, taps] along an axis; -1 outside."""
    count = (size + before + after - step * (kernel - 1) - 1) // stride + 1
    found = np.arange(count)[:, None] * stride + np.arange(kernel) * step - before
    return np.where((found >= 0) & (found < size), found, -1)


def _gathered(pixels: Array, index: Index) -> Array:
    """[positions, taps, channels], zeros outside of the image."""
    return np.concatenate([pixels, np.zeros_like(pixels[:1])])[index]
