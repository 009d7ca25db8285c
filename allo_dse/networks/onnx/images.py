"""Convolution, pooling and batch normalization of ONNX: operators on images of one, two or more dimensions.

A convolution is a product: what lies under the kernel at every position, times the weights. Gathering it is a
rearrangement, which is free for kernels of one pixel. Pooling takes of it the largest or the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import replace

from ..operators.elementwise import depthwise_work
from ..operators.execute import Expr, Operand
from ..operators.expressions import number
from .builder import Array, Builder, InvalidModel
from .elementwise import Group, add_group
from .evaluate import run_model
from .graph import Node

Index = NDArray[np.int64]
MOST_GROUPS = 64
"""Groups of a convolution that are products one by one."""


MOST_TAPS = 7168
"""Weights of two bytes in a depthwise convolution's task. They and as many elements under the kernel take four bytes
each for double buffering: seven eighths of 64 KB. Results and the stack need the rest."""


def conv(builder: Builder, node: Node) -> None:
    """Convert a convolution, or a transposed one: the same on an image with zeros between its pixels."""
    x, w, bias = (*node.inputs, "")[:3]
    weights, shape = builder.graph.known.get(w), builder.shape(x)
    if weights is None or weights.ndim != len(shape) or weights.ndim < 3:
        raise builder.refuse(node, "weights must be constants")
    groups, channels = int(node.number("group", 1)), shape[1]
    if node.op == "ConvTranspose":  # weights are [channels, results of a group, ...]
        split = weights.reshape(groups, channels // groups, *weights.shape[1:])
        weights = np.moveaxis(split, 1, 2).reshape(-1, channels // groups, *weights.shape[2:])
    kernel = _numbers(node, "kernel_shape", weights.shape[2:])
    if weights.shape[1:] != (channels // groups, *kernel) or channels % groups:
        said = f"weights of {weights.shape} for an image of {shape}, kernel {kernel}"
        raise InvalidModel(f"{builder.graph.name}: {node.place}: {said}", hint="export the model again")
    index = windows(builder, node, kernel)
    taps, count, pixels = index.shape[1], weights.shape[0], builder.pixels(x)
    by_tap = np.moveaxis(weights, (0, 1), (-1, -2)).reshape(taps, channels // groups, count)
    beside = [builder.known(np.full((1, channels), edge))] if (edge := int(node.number("edge", 0))) else []

    def gathered(one: Array, *edge: Array) -> Array:
        under = _gathered(one, index, channels, *edge)
        return under.reshape(len(index), -1) if groups == 1 else under.swapaxes(0, 1)

    if groups == 1:
        matrix = builder.known(by_tap.reshape(-1, count))
        builder.product(
            node, builder.arranged(gathered, pixels, *beside), matrix, bias, output=builder.new_pixels(node)
        )
        return
    if groups == channels == count:
        columns, parts = by_tap.reshape(taps, count), list[str]()
        most = max(1, min(count, MOST_TAPS * builder.word // 2 // taps))
        width = next(one for one in range(most, 0, -1) if count % one == 0)
        for first in range(0, count, width):  # no core holds the weights of more
            own = slice(first, first + width)
            under = builder.arranged(lambda *one, at=own: gathered(*one)[..., at], pixels, *beside)
            work = depthwise_work(taps, len(index), width, builder.element)
            kind, shape = "product" if bias or width < count else "", (len(index), width)
            parts.append(builder.part(node, work, under, builder.known(columns[:, own]), kind=kind, shape=shape))
        sums = builder.arranged(lambda *own: np.concatenate(own, axis=1), *parts) if parts[1:] else parts[0]
    else:
        sums = _by_groups(builder, node, pixels, index, by_tap.reshape(taps, -1, groups, count // groups))
    if bias:
        builder.add_row(node, sums, bias, builder.new_pixels(node))
    else:
        builder.made_pixels(node, sums)


def _by_groups(builder: Builder, node: Node, pixels: str, index: Index, by_tap: Array) -> str:
    """Add a product for each group of channels; returns the pixels of all."""
    taps, width, groups, _ = by_tap.shape
    if groups > MOST_GROUPS:
        raise builder.refuse(node, f"{groups} groups of {width} channels; at most {MOST_GROUPS} are products")
    parts = []
    for at in range(groups):
        own = slice(at * width, (at + 1) * width)

        def gathered(one: Array, own: slice = own) -> Array:
            return _gathered(one[:, own], index, width).reshape(len(index), -1)

        matrix = builder.known(by_tap[:, :, at].reshape(taps * width, -1))
        name = builder.graph.new_name(f"{node.name or node.output}.group{at}")
        parts.append(builder.matrix_product(name, builder.arranged(gathered, pixels), matrix))
    return builder.arranged(lambda *own: np.concatenate(own, axis=1), *parts)


def pool(builder: Builder, node: Node) -> None:
    """Convert a pool: the elements under the kernel are the rows of a matrix that is reduced."""
    x, channels = node.inputs[0], builder.shape(node.inputs[0])[1]
    index, op = windows(builder, node, _numbers(node, "kernel_shape")), node.op.removesuffix("Pool").lower()
    beside, taps = index == math.prod(builder.shape(x)) // channels, index.shape[1]
    if beside.all(axis=1).any():
        raise builder.refuse(node, f"a {op} over positions beside the image")
    given, factor, names = [Operand("full")], number(1 / taps), list[str]()
    if op == "max":  # positions beside the image repeat a pixel of the window
        index = np.where(beside, index.min(axis=1, keepdims=True), index)
    elif beside.any() and not node.number("count_include_pad", 0):
        counts = np.repeat((~beside).sum(axis=1), channels).astype(np.float32)
        given, factor, names = [*given, Operand("column")], ("in", 1), [builder.known(1 / counts)]
    under = builder.arranged(lambda one: _gathered(one, index, channels).swapaxes(1, 2), builder.pixels(x))
    expr: Expr = ("row_max", ("in", 0)) if op == "max" else ("mul", ("row_sum", ("in", 0)), factor)
    size, kind = (len(index) * channels, taps), "max_pool" if op == "max" else "mean_pool"
    builder.expression(node, kind, expr, given, size, [under, *names], output=builder.new_pixels(node))


def resize(builder: Builder, node: Node) -> None:
    """Convert an interpolation along each dimension by itself: a product with a matrix that is known.

    Linear and cubic interpolation are defined so.
    """
    x, known, proto = node.inputs[0], builder.graph.known, node.proto
    before, after = builder.shape(x), builder.shape(node.output)
    axes = [axis for axis, size in enumerate(before) if size != after[axis]]
    nearest = node.attributes.get("mode", b"nearest") == b"nearest"
    nearest |= node.attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"  # which has borders
    if proto is None or nearest or min(axes, default=0) < 2 or any(n and n not in known for n in node.inputs[1:]):
        raise builder.refuse(node, "the sizes of images must be numbers")

    def resized(image: Array, own: int) -> NDArray[np.float32]:
        """An image of one channel, with a dimension resized."""
        kept = [axis != own for axis in range(len(before))]
        given = {name: known[name] for name in node.inputs[1:] if name}
        for name, one in given.items():
            if one.size == len(before):
                given[name] = np.where(kept, image.shape if one.dtype.kind == "i" else 1, one).astype(one.dtype)
        return run_model([proto], {**given, x: image}, [node.output], builder.graph.versions)[node.output].astype(
            np.float32
        )

    name = x
    for axis in axes:
        size = before[axis]
        units = np.eye(size, dtype=np.float32).reshape([size if at in (0, axis) else 1 for at in range(len(before))])
        name = builder.along(node, name, axis, resized(units, axis).reshape(size, -1).T)
    builder.rearrange(node, lambda one: one, name)


def batch_norm(builder: Builder, node: Node) -> None:
    """Convert a batch normalization; it becomes part of a convolution before it."""
    x, *names = node.inputs[:5]
    known, channels = builder.graph.known, builder.shape(x)[1:2]
    learned = node.number("training_mode", 0) or any(node.outputs[1:])
    if learned or any(name not in known or known[name].shape != channels for name in names):
        raise builder.refuse(node, "weights and statistics of each channel must be constants")
    scale, bias, mean, variance = (known[name].astype(np.float32) for name in names)
    factor = scale / np.sqrt(variance + np.float32(node.number("epsilon", 1e-5)))
    before = builder.ours.get(x)
    if before is not None and before.op == "Conv" and all(name in known for name in before.inputs[1:]):
        image, w, *more = before.inputs
        own = known[more[0]].astype(np.float32) if more else np.float32(0)
        scaled = known[w] * factor.reshape(-1, *[1] * (known[w].ndim - 1))
        weights = builder.graph.new_known(f"{node.output}.weights", scaled)
        plus = builder.graph.new_known(f"{node.output}.bias", (own - mean) * factor + bias)
        return conv(builder, replace(before, name=node.name, inputs=(image, weights, plus), output=node.output))
    builder.pixels(x)
    shape, root = (-1, *[1] * (len(builder.shape(x)) - 2)), replace(node, op="batch_norm")
    rows = [builder.graph.new_known(f"{node.output}.row", one.reshape(shape)) for one in (factor, bias - mean * factor)]
    expr: Expr = ("add", ("mul", ("in", 0), ("in", 1)), ("in", 2))
    return add_group(builder, Group(root, (root,), expr, (x, *rows)))


def _numbers(node: Node, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    found = node.attributes.get(name, default)
    assert isinstance(found, Sequence)
    return tuple(int(one) for one in found)


def windows(builder: Builder, node: Node, kernel: Sequence[int]) -> Index:
    """[positions, taps]: the pixels under the kernel; as many as there are in all where it leaves the image.

    Sizes of results are those of the model, whatever padding and rounding lead to them.
    """
    (batch, _, *sides), results = builder.shape(node.inputs[0]), builder.shape(node.output)[2:]
    rank, turned = len(sides), node.op == "ConvTranspose"
    strides, steps = (_numbers(node, name, (1,) * rank) for name in ("strides", "dilations"))
    pads, auto = _numbers(node, "pads", (0,) * 2 * rank), node.attributes.get("auto_pad", b"NOTSET")
    image = np.arange(1, 1 + math.prod(sides)).reshape(sides)
    if turned:
        if auto != b"NOTSET" or "output_shape" in node.attributes:
            raise builder.refuse(node, "padding must be constant numbers")
        spread = np.zeros([(size - 1) * by + 1 for size, by in zip(sides, strides, strict=True)], np.int64)
        spread[tuple(slice(None, None, by) for by in strides)] = image
        image, strides = spread, (1,) * rank
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=True)]
    for axis, size in enumerate(image.shape):
        needed, before = (results[axis] - 1) * strides[axis] + spans[axis], pads[axis]
        if turned:
            before = spans[axis] - 1 - before
        elif auto in (b"SAME_UPPER", b"SAME_LOWER"):
            before = (max(0, needed - size) + (auto == b"SAME_LOWER")) // 2
        at = np.arange(needed) - before
        edge = np.pad(image, [(int(own == axis), 0) for own in range(rank)])
        image = edge.take(np.where((at >= 0) & (at < size), at + 1, 0), axis)
    every = tuple(slice(None, None, by) for by in (*strides, *steps))
    under = np.lib.stride_tricks.sliding_window_view(image, spans)[every]
    one = (np.flip(under, tuple(range(rank, 2 * rank))) if turned else under).reshape(-1, math.prod(kernel)) - 1
    size = math.prod(sides)
    images = np.arange(batch)[:, None, None] * size + one
    return np.where(one < 0, batch * size, images).reshape(-1, one.shape[1])


def _gathered(pixels: Array, index: Index, channels: int, edge: Array | None = None) -> Array:
    """[positions, taps, channels], a pixel of zeros or another one outside of the image."""
    pixels = pixels.reshape(-1, channels)
    beside = np.zeros_like(pixels[:1]) if edge is None else edge.astype(pixels.dtype)
    return np.concatenate([pixels, beside])[index]
