"""Tensors that a task reads or writes once, in order: a stream at the region's edge can take the place of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import numpy as np

from allo_dse.common.mlir.bindings import Operation, Value, ir, nested_ops
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Frozen, replace

from ..ir.nest import accesses_of, read_nest
from ..program.compiled import CompiledProgram, Kernel, TaskBody, TaskClass
from ..program.tensors import IndexMap, StreamArray, StreamPort, Tensor, TensorPort
from .body import Body, around, is_pure
from .streams import accesses

EDGE_DEPTH = 2
"""Depth of the FIFO between a task and the process that moves its tensor; what is under way is in the adapter."""


class EdgeTensor(Frozen):
    """A tensor whose only task accesses each element once, in row-major order.

    Attributes:
        argument: its name in the kernel.
        direction: of the stream that can replace it, as its task sees it.
        loops: around the accesses, from the outermost to the innermost, by their numbers in the task class.
    """

    tensor: Tensor
    kernel: str
    argument: str
    direction: Literal["get", "put"]
    loops: tuple[tuple[int | None, ...], ...]


@lru_cache(maxsize=256)
def edge_tensors(program: CompiledProgram) -> Mapping[str, EdgeTensor]:
    """The tensors of a program that can be streams, by name."""
    ports: dict[str, list[tuple[Kernel, TensorPort]]] = {}
    for kernel in program.kernels:
        for task_class in kernel.classes:
            for port in task_class.used_ports:
                ports.setdefault(port.tensor.name, []).append((kernel, port))
    found = {}
    for tensor in program.tensors:
        users = ports.get(tensor.name, [])
        if len(users) != 1 or users[0][0].task_count > 1 or not tensor.shape or tensor.dtype.is_fixed:
            continue
        ((kernel, port),) = users
        if port.tile_shape == tensor.shape and (edge := _edge(kernel, port)) is not None:
            found[tensor.name] = edge
    return found


def _edge(kernel: Kernel, port: TensorPort) -> EdgeTensor | None:
    (task_class,) = (one for one in kernel.classes if port in one.tensor_ports)
    with text_context():
        body = Body.of(task_class, ir.Context.current)
        ops = _uses(kernel, body, port)
        if not ops:
            return None
        _reuse(ops)
        nest = read_nest(body.text())
    name = next(name for name, array in nest.arrays.items() if array.argument == port.arg)
    write = ops[0].name == "memref.store"
    elements = None if nest.unsupported else accesses(nest.body, name, port.tile_shape, write=write)
    if elements is None or not np.array_equal(elements, np.arange(int(np.prod(port.tile_shape)))):
        return None
    loops = tuple(tuple(loop.source for loop in outer) for _, outer in accesses_of(nest.body, name))
    return EdgeTensor(port.tensor, kernel.name, name, "put" if write else "get", loops)


def _uses(kernel: Kernel, body: Body, port: TensorPort) -> list[Operation]:
    """The loads or stores of an argument, in the order of the text; none where it is used in another way."""
    argument = list(body.block.arguments)[len(kernel.mesh) + port.arg]
    owners = {use.owner.operation for use in argument.uses}
    ordered = [op for op in nested_ops(body.function, parents_first=True) if op in owners]
    kinds = {op.name for op in ordered}
    return ordered if kinds in ({"memref.load"}, {"memref.store"}) else []


def _reuse(ops: list[Operation]) -> None:
    """Let a value that is loaded again, in a block around or in the same, be loaded once."""
    known: dict[tuple[object, ...], Operation] = {}
    for op in list(ops):
        if op.name != "memref.load":
            return
        key = tuple(_expression(value) for value in list(op.operands)[1:])
        first = known.get(key)
        if first is not None and any(outer.block == first.block for outer in (op, *around(op))):
            op.results[0].replace_all_uses_with(first.results[0])
            ops.remove(op)
            op.erase()
        else:
            known[key] = op


def _expression(value: Value) -> object:
    """A key that values computed in the same way share."""
    if isinstance(value, ir.BlockArgument) or not is_pure(value.owner):
        return value
    owner = value.owner
    return owner.name, str(owner.attributes), tuple(_expression(operand) for operand in owner.operands)


class Edged(Frozen, eq=False):
    """A program with streams at its edge.

    Attributes:
        streams: by the tensor that each replaces; in the program they follow its own.
        edges: the tensors, by name.
        banks: the streams that say which banks of a ping-pong buffer are in use, by the stream that it stands for.
    """

    program: CompiledProgram
    streams: Mapping[str, StreamArray]
    edges: Mapping[str, EdgeTensor]
    banks: Mapping[str, StreamArray] = {}


@lru_cache(maxsize=256)
def with_edges(program: CompiledProgram, names: frozenset[str]) -> Edged:
    """The program with streams in place of some tensors' accesses.

    before:  for i: pipe.put(x[i])        after:  for i: pipe.put(x_stream.get())
    """
    edges = {name: edge for name, edge in edge_tensors(program).items() if name in names} if names else {}
    taken, streams = {stream.name for stream in program.streams}, dict[str, StreamArray]()
    kernels = list(program.kernels)
    for name, edge in edges.items():
        unique = next(one for one in (f"{name}_stream", *(f"{name}_stream{n}" for n in range(99))) if one not in taken)
        taken.add(unique)
        stream = StreamArray(unique, edge.tensor.dtype, (), EDGE_DEPTH, ())
        streams[name] = stream
        at = [kernel.name for kernel in kernels].index(edge.kernel)
        classes = []
        for task_class in kernels[at].classes:
            port = next((p for p in task_class.used_ports if p.tensor == edge.tensor), None)
            classes.append(task_class if port is None else _replaced(kernels[at], task_class, port, edge, stream))
        kernels[at] = replace(kernels[at], classes=tuple(classes))
    if not streams:
        return Edged(program, {}, {})
    changed = {"streams": (*program.streams, *streams.values()), "kernels": tuple(kernels)}
    return Edged(CompiledProgram(**program.compiled_fields | changed), streams, edges)


def _replaced(
    kernel: Kernel, task_class: TaskClass, port: TensorPort, edge: EdgeTensor, stream: StreamArray
) -> TaskClass:
    with text_context():
        body = Body.of(task_class, ir.Context.current)
        ops = _uses(kernel, body, port)
        _reuse(ops)
        index = ir.IndexType.get()
        end = body.block.add_argument(index, ir.Location.unknown())
        body.parameters = (*body.parameters, f"s{len(task_class.body.streams)}")
        body.retype()
        for op in ops:
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(task_class.stream_ops))
            with ir.InsertionPoint(op):
                if edge.direction == "get":
                    made = Operation.create("df.get", [op.results[0].type], [end], attributes={"op": number})
                    op.results[0].replace_all_uses_with(made.results[0])
                else:
                    Operation.create("df.put", [], [end, op.operands[0]], attributes={"op": number})
            op.erase()
        text = body.text()
    tokens = int(np.prod(edge.tensor.shape))
    moved = StreamPort(stream, edge.direction, IndexMap((), (), ()), tokens)
    own = TaskBody(task_class.body.symbol, text, (*task_class.body.streams, moved))
    ports = tuple(replace(p, reads=False, writes=False) if p == port else p for p in task_class.tensor_ports)
    return replace(task_class, body=own, tensor_ports=ports, stream_ports=(*task_class.stream_ports, moved), arrays=())
