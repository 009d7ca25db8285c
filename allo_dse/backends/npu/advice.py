"""Rewrites of programs that exceed a limit under every fold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.violation import Violation

from .allo.program_rules import MOST_DIMENSIONS, MOST_HOST_BUFFERS, buffer_kinds
from .allo.stream_rules import is_vectorised
from .movement.movement import WORD_BYTES

Dimension = tuple[str, int]
"""A mesh axis that cuts tensors ("axis", number), or an uncut dimension ("size", elements)."""


def rewrite(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Return a rewrite of the program that keeps the limit; empty if none is known."""
    find = _REWRITES.get(violation.constraint)
    return find(violation, program, device) if find else ""


def _smaller_tiles(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Halve tiles, along mesh axes or uncut dimensions alone, until tensors, streams and arrays shrink enough."""
    own = max(program.task_classes, key=lambda cls: _tensor_bytes(cls, {}))
    reserved = device.reserved_core_bytes
    budget = _tensor_bytes(own, {}) * (violation.limit - reserved) // (violation.needed - reserved)
    mesh = program.kernel(own.kernel).mesh
    sizes = dict.fromkeys(one for port in own.used_ports for one in _sizes(port))
    ways = []
    for kind in ("axis", "size"):
        parts: dict[Dimension, int] = {}
        while _tensor_bytes(own, parts) > budget:
            halved = [{**parts, one: 2 * parts.get(one, 1)} for one in sizes if one[0] == kind]
            halved = [
                option
                for option in halved
                if all(_sizes(port).get(one, n) % n == 0 for one, n in option.items() for port in own.used_ports)
            ]
            if not halved:
                break
            parts = min(halved, key=lambda option: _tensor_bytes(own, option))
        else:
            ways.append(" and ".join(_cut(own, one, n, mesh) for one, n in parts.items()))
    return "; or ".join(ways)


def _cut(own: TaskClass, dimension: Dimension, parts: int, mesh: tuple[int, ...]) -> str:
    kind, number = dimension
    if kind == "axis":
        return f"map {own.kernel} to {mesh[number] * parts} tasks along axis {number} instead of {mesh[number]}"
    cut = [port for port in own.used_ports if dimension in _sizes(port)]
    sums = "" if any(port.writes for port in cut) else ", adding the parts up through a stream if results lack it"
    names = " and ".join(dict.fromkeys(port.tensor.name for port in cut))
    return f"shard the dimension of {number} of {names} over a mesh axis in {parts} parts of {number // parts}{sums}"


def _sizes(port: TensorPort) -> dict[Dimension, int]:
    """Return the elements of a tile along each dimension."""
    pairs = zip(port.layout, port.tile_shape, strict=True)
    return {("size", size) if axis is None else ("axis", axis): size for axis, size in pairs}


def _tensor_bytes(own: TaskClass, parts: Mapping[Dimension, int]) -> int:
    """Bytes of a task's tiles, double-buffered, with some dimensions in parts."""
    return sum(
        2 * len(port.directions) * port.tile_bytes // math.prod(parts.get(one, 1) for one in _sizes(port))
        for port in own.used_ports
    )


def _by_stream(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Move tensors to kernels of their own; tiles with an operand's shape last, whose streams change their layout."""
    way = "in" if violation.constraint == "core_dma_in" else "out"
    own = max(program.task_classes, key=lambda cls: sum(way in port.directions for port in cls.used_ports))
    products = [op.shape for op in own.work if op.kind == "matmul"]
    operands = {shape for m, k, n in products for shape in ((m, k), (k, n))} - {(m, n) for m, _, n in products}
    ports = [port for port in own.used_ports if way in port.directions]
    ports.sort(key=lambda p: (p.tile_shape in operands, -sum(axis is not None for axis in p.layout), p.tile_bytes))
    names = " and ".join(port.tensor.name for port in ports[: violation.needed - violation.limit])
    where = f"a kernel of its own with mapping={list(program.kernel(own.kernel).mesh)}"
    if way == "in":
        return f"take {names} as an argument of {where}, which puts its tile into a stream, and get it in {own.kernel}"
    return f"put {names} into a stream in {own.kernel}, and get it in {where}, which writes the tensor"


def _as_matrix(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Merge neighbouring dimensions into two; only the first of each group may be sharded."""
    ports = _ports(violation, program)
    if not ports or violation.limit != MOST_DIMENSIONS:
        return ""
    name, shape = ports[0].tensor.name, ports[0].tensor.shape
    sharded = {d for p in ports for d, axis in enumerate(p.layout) if axis is not None}
    for first in range(1, len(shape)):
        if sharded <= {0, first}:
            rows, columns = math.prod(shape[:first]), math.prod(shape[first:])
            return f"pass {name} as a matrix of {rows} x {columns}, and compute the index in the merged dimension"
    return f"replicate a dimension of {name}, or pass it as several matrices"


def _ports(violation: Violation, program: CompiledProgram) -> list[TensorPort]:
    """Return the ports of the tensor that a violation is about."""
    return [port for cls in program.task_classes for port in cls.used_ports if port.tensor.name == _name(violation)]


def _name(violation: Violation) -> str:
    """Return the name of the tensor or stream that a violation is about."""
    return violation.where.removeprefix("tensor ").removeprefix("stream ")


def _one_shape(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Cut operations into pieces of the largest shape that divides all of them."""
    shapes = [tuple(map(int, shape.split("x"))) for shape in violation.detail.split(", ")]
    common = tuple(map(math.gcd, *shapes)) if len({*map(len, shapes)}) == 1 else ()
    loop = "write all but one as loops over elements"
    if not common or min(common) < 4:  # the smallest size of vector kernels
        return loop
    piece = "x".join(map(str, common))
    return f"cut each into pieces of {piece}, slices in `with allo.meta_for(n) as i`, or choose sizes alike; or {loop}"


def _in_order(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Sort the region's arguments: kinds with most tensors first."""
    kinds = buffer_kinds(program)
    if violation.needed > violation.limit and len({*kinds.values()}) > MOST_HOST_BUFFERS:
        return "give tensors of one direction the same element type"
    counts = Counter(kinds.values())
    names = sorted(kinds, key=lambda name: (-counts[kinds[name]], list(counts).index(kinds[name])))
    return f"declare the region's arguments in the order {', '.join(names)}"


def _smaller_calls(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Need the same tile less often in a call."""
    times, name = -(-violation.needed // violation.limit), violation.where
    return (
        f"make tiles {times} times as large along an axis that {name} is replicated on, or call it on 1/{times} of it"
    )


def _in_parts(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Multiply a token in parts: the core copies them out of a plain tile, so the stream keeps its layout there."""
    stream = _name(violation)
    for cls in program.task_classes:
        blocks = {p.stream.block for p in cls.stream_ports if (p.stream.name, p.direction) == (stream, "get")}
        for op in cls.work:
            if op.kind != "matmul" or not is_vectorised(op, device.architecture):
                continue
            m, k, n = op.shape
            left, right = ((m, k), ":, i"), ((k, n), "i, :")
            token, other = (left, right) if left[0] in blocks else (right, left)
            if token[0] not in blocks:
                continue
            pieces = [replace(op, shape=(m, k // parts, n)) for parts in range(2, k + 1) if k % parts == 0]
            size = next((one for one in pieces if is_vectorised(one, device.architecture)), pieces[0]).shape[1]
            names = [port.tensor.name for port in cls.used_ports if port.tile_shape == other[0]]
            return (
                f"in {cls.kernel}, get {stream} into a tile of {token[0][0]} x {token[0][1]}, and add up products of "
                f"its parts [{token[1]}] and parts [{other[1]}] of {names[0] if names else 'the other operand'}, where "
                f"i is one of {k // size} slices of {size} in `with allo.meta_for({k // size})`"
            )
    return ""


def _padded(violation: Violation, program: CompiledProgram, device: NpuDevice) -> str:
    """Pad rows to whole words."""
    port = _ports(violation, program)[0]
    width, tile = port.tensor.shape[-1], port.tile_shape[-1]
    step = max(1, 8 * WORD_BYTES // port.tensor.dtype.bits)
    padded = -(-tile // step) * step
    wide = width // tile * padded
    return f"pad the width of {port.tensor.name} from {width:,} to {wide:,}: tiles of {padded} instead of {tile}"


_REWRITES: Mapping[str, Callable[[Violation, CompiledProgram, NpuDevice], str]] = {
    "core_memory": _smaller_tiles,
    "core_dma_in": _by_stream,
    "core_dma_out": _by_stream,
    "allo_tensor_rank": _as_matrix,
    "allo_kernel_shapes": _one_shape,
    "host_buffers": _in_order,
    "allo_requests": _smaller_calls,
    "allo_stream_layout": _in_parts,
    "word_alignment": _padded,
}
