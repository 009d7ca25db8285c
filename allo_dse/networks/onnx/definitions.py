"""Operators that ONNX defines by others: products in blocks, norms, sums over products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto

Array = NDArray[np.generic]
Shape = tuple[int, ...]


class Parts(list["NodeProto"]):
    """Nodes that define another one, which is the last of them.

    Attributes:
        attributes: of that one, by name.
    """

    def __init__(self, whole: NodeProto) -> None:
        from onnx import helper

        self.whole = whole
        self.attributes: dict[str, Any] = {one.name: helper.get_attribute_value(one) for one in whole.attribute}
        self.stem = next(filter(None, whole.output))

    def step(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return what it writes."""
        from onnx import helper

        self.append(helper.make_node(op, list(inputs), [f"{self.stem}/{len(self)}"], **attributes))
        return str(self[-1].output[0])

    def constant(self, values: Sequence[float], element: int = 7) -> str:
        """Add a vector of numbers."""
        from onnx import helper

        return self.step("Constant", value=helper.make_tensor("", element, [len(values)], values))

    def done(self, last: NodeProto | None = None) -> list[NodeProto]:
        """Give the last node, or the only writer of the same, the name of the whole, and the last one its output."""
        self[-1].output[0], (last or self[-1]).name = self.whole.output[0], self.whole.name
        return self


def linear_parts(proto: NodeProto) -> list[NodeProto] | None:
    """Return an operator on quantized tensors as one between conversions; None for any other node.

    Each input comes with its scale and its zero, the output's follow; a bias has the product of the inputs' scales.
    """

    from onnx import defs

    kind = proto.op_type.removeprefix("QLinear" if proto.op_type.startswith("QLinear") else "Q")
    if not proto.op_type.startswith(("QLinear", "QGemm")) or kind == "Concat" or not defs.has(kind):
        return None
    tensors = (len(proto.input) - 2) // 3  # the output has two numbers, and a bias is one
    given, made, names = [*proto.input, "", ""], Parts(proto), list[str]()
    turned = kind == "Conv" or made.attributes.get("transB")
    for at in range(tensors):
        axis = {"axis": 0 if turned else 1} if at else {}
        names.append(made.step("DequantizeLinear", *given[3 * at : 3 * at + 3], **axis))
    ends, bias = given[3 * tensors :], ""
    if kind == "Gemm":
        bias, *ends = ends
    elif kind == "Conv":
        bias = ends[2]
    if bias:
        names.append(made.step("DequantizeLinear", bias, made.step("Mul", given[1], given[4]), axis=0))
    real = made.step(kind, *names)
    own = made[-1]
    own.attribute.extend(one for one in proto.attribute if one.name not in ("channels_last", "opset"))
    made.step("QuantizeLinear", real, *ends[:2])
    return made.done(own)


def einsum_parts(proto: NodeProto, types: Mapping[str, TypeProto], same: Mapping[str, str]) -> list[NodeProto] | None:
    """Return a sum over products of two tensors as a product of matrices; None for any other node.

    Of more tensors, the first two are multiplied before the rest.
    """
    names = [same.get(name, name) for name in proto.input]
    shapes = [shape_of(types[name]) if name in types else None for name in names]
    if proto.op_type != "Einsum" or len(names) < 2 or None in shapes:
        return None
    made = Parts(proto)
    text = made.attributes["equation"].decode().replace(" ", "")
    terms, _, result = text.partition("->")
    a, b, *more = terms.split(",")
    if more and result and "." not in text:
        kept = "".join(one for one in dict.fromkeys(a + b) if one in "".join([*more, result]))
        made.step("Einsum", *names[:2], equation=f"{a},{b}->{kept}")
        made[0].output[0] = both = f"{made.stem}/of{len(more)}"  # the last node's parts are numbered from 0 as well
        made.step("Einsum", both, *names[2:], equation=f"{','.join([kept, *more])}->{result}")
        return made.done()
    alone = (set(a) ^ set(b)) - set(result)
    if not result or "." in text or alone or any(len(set(own)) < len(own) for own in (a, b, result)):
        return None
    sizes = dict(zip(a + b, [size for shape in shapes for size in shape or ()], strict=True))
    batch = [one for one in a if one in b and one in result]
    rows, columns = ([one for one in own if one not in other] for own, other in ((a, b), (b, a)))
    depth = [one for one in a if one in b and one not in result]

    def shaped(name: str, *parts: Sequence[str]) -> str:
        return made.step("Reshape", name, made.constant([prod(sizes[one] for one in own) for own in parts]))

    def matrices(name: str, own: str, *parts: Sequence[str]) -> str:
        perm = [own.index(one) for part in parts for one in part]
        return shaped(made.step("Transpose", name, perm=perm), *parts)

    product = made.step(
        "MatMul", matrices(names[0], a, batch, rows, depth), matrices(names[1], b, batch, depth, columns)
    )
    order = [*batch, *rows, *columns]
    made.step("Transpose", shaped(product, *order), perm=[order.index(one) for one in result])
    return made.done()


NORMS = {"LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"}


def norm_parts(proto: NodeProto, shape: Shape | None, version: int) -> list[NodeProto] | None:
    """Return a norm over the last dimensions, groups of channels or each channel as its definition.

    None for any other node, and for one whose statistics are outputs.

    Args:
        shape: of its first input.
    """
    if proto.op_type not in NORMS or proto.domain not in {"", "ai.onnx"} or not shape or any(proto.output[1:]):
        return None
    made, last = Parts(proto), proto.op_type[0] in "LR"
    step, constant, numbers = made.step, made.constant, made.attributes
    axes = list(range(len(shape)))[numbers.get("axis", -1) if last else 2 :]
    groups = 1 if last else numbers.get("num_groups", shape[1])
    split = not last and groups < shape[1]
    if not axes:
        return None

    def mean(one: str) -> str:
        return step("ReduceMean", one, axes=axes) if version < 18 else step("ReduceMean", one, constant(axes))

    def of_channels(one: str) -> str:
        if split and version < 21:  # weights were those of groups
            one = step("Expand", step("Reshape", one, constant([-1, 1])), constant([groups, shape[1] // groups]))
        return one if last else step("Reshape", one, constant([shape[1], *(1 for _ in shape[2:])]))

    x = proto.input[0]
    if split:
        x, axes = step("Reshape", x, constant([shape[0], groups, -1])), [2]
    x = x if proto.op_type[0] == "R" else step("Sub", x, mean(x))
    epsilon = constant([numbers.get("epsilon", 1e-5)], 1)
    x = step("Div", x, step("Sqrt", step("Add", mean(step("Mul", x, x)), epsilon)))
    x = step("Reshape", x, constant(shape)) if split else x
    for op, weight in zip(("Mul", "Add"), filter(None, proto.input[1:]), strict=False):
        x = step(op, x, of_channels(weight))
    return made.done()


def narrow_parts(proto: NodeProto, known: Mapping[str, Array]) -> tuple[list[NodeProto], list[Array]] | None:
    """Return a product with weights of a few bits, in blocks with a scale each, as one with floats.

    None for any other node. With it come the codes, scales and zeros of the weights, which the first node has.
    """
    from onnx import numpy_helper

    if proto.op_type != "MatMulNBits":
        return None
    numbers = (made := Parts(proto)).attributes
    given = dict(zip(("x", "codes", "scales", "zeros", "groups", "bias"), proto.input, strict=False))
    bits, needed = numbers.get("bits", 4), [given.get(name, "") for name in ("codes", "scales", "zeros")]
    if bits not in (2, 4, 8) or any(name and name not in known for name in needed):
        return None
    (columns, depth), block = (numbers[name] for name in "NK"), numbers["block_size"]
    blocks = -(-depth // block)

    def unpacked(packed: Array, count: int) -> Array:
        if bits < 8 and packed.dtype == np.uint8:
            packed = packed.astype(np.uint8)[..., None] >> np.arange(0, 8, bits).astype(np.uint8) & ((1 << bits) - 1)
        return packed.reshape(columns, -1)[:, :count]

    codes, scales = unpacked(known[needed[0]], blocks * block), known[needed[1]].reshape(columns, blocks)
    zeros = unpacked(known[needed[2]], blocks) if needed[2] else np.full((columns, blocks), 1 << bits - 1)
    each = [codes, np.repeat(scales.astype(np.float32), block, axis=1), np.repeat(zeros, block, axis=1)]
    whole, scale, zero = each = [one[:, :depth].T for one in each]
    weights = (whole.astype(np.float32) - zero.astype(np.float32)) * scale
    value = made.step("Constant", value=numpy_helper.from_array(np.ascontiguousarray(weights)))
    product = made.step("MatMul", given["x"], value)
    if given.get("bias"):
        made.step("Add", product, given["bias"])
    return made.done(made[1]), each


def shape_of(type_: TypeProto) -> Shape | None:
    dims = type_.tensor_type.shape.dim
    closed = type_.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return tuple(dim.dim_value for dim in dims) if closed else None
