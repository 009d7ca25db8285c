"""Calls of vendor kernels: the body calls a C function that the simulator makes of what the study says they compute."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from allo_dse.lang.allo.backend_aie import ExternalModule
from allo_dse.program.tasks import ExternalCall

from ..model.values import Buffer, Const, TileValue, Value
from ..ops import tiles
from ..ops.scalars import as_scalar
from ..ops.tile_layouts import note_elements
from ..regions.task_state import Task


def external_of(function: object) -> ExternalModule | None:
    """The vendor kernel that `function` is, be it declared by our class or by that of an installed `allo`."""
    if isinstance(function, ExternalModule):
        return function
    if type(function).__name__ != "ExternalModule" or not hasattr(function, "top"):
        return None
    return ExternalModule(
        function.top,
        str(getattr(function, "impl_path", "")),
        getattr(function, "input_idx", ()),
        getattr(function, "output_idx", ()),
    )


def call_external(task: Task, module: ExternalModule, args: Sequence[Value], node: ast.Call) -> Value:
    """`norm(x, scale, out)`: inputs are read and outputs written as `input_idx` and `output_idx` say."""
    inputs, outputs = tuple(module.input_idx), tuple(module.output_idx)
    if sorted({*inputs, *outputs}) != list(range(len(args))):
        task.fail(
            node,
            f"external kernel `{module.top}` is called with {len(args)} arguments, but reads {list(inputs)} and "
            f"writes {list(outputs)}",
            "input_idx and output_idx must name every argument",
        )
    buffers = [_operand(task, value, p in inputs, node, node.args[p]) for p, value in enumerate(args)]
    for position in outputs:
        target = args[position]
        if not isinstance(target, Buffer) or target.constant:
            task.fail(node.args[position], f"argument {position} of `{module.top}` is written and must be a tile")
    operands = tuple((buffer.dtype, buffer.shape) for buffer in buffers)
    _call(task, buffers)
    task.externals.append(ExternalCall(module.top, operands, inputs, outputs, task.location(node)))
    first = operands[outputs[0]][1] if outputs else ()
    types = [operands[p][0] for p in (*inputs, *outputs)]
    task.price("external", first, types, node, module.top)
    for position in outputs:
        target = args[position]
        assert isinstance(target, Buffer)
        tiles.move(task, buffers[position], target)
        note_elements(task, target)
    return Const(None)


def _operand(task: Task, value: Value, is_read: bool, node: ast.AST, part: ast.AST) -> Buffer:
    """An argument in memory of its own, row-major."""
    if not tiles.is_tile(value):
        scalar = as_scalar(task, value, part)
        buffer = task.new_buffer(scalar.dtype, ())
        tiles.store(task, scalar, buffer, [])
        return buffer
    assert isinstance(value, TileValue)
    if not isinstance(value, Buffer):
        return tiles.materialise(task, value)
    buffer = task.new_buffer(value.dtype, value.shape)
    if is_read:
        tiles.move(task, value, buffer)
    return buffer


def _call(task: Task, buffers: Sequence[Buffer]) -> None:
    """Call the function whose address is an argument of the body."""
    text = task.text
    words = []
    for buffer in buffers:
        address = text.op(f"memref.extract_aligned_pointer_as_index {buffer.ssa} : {buffer.type} -> index")
        words.append(text.op(f"arith.index_cast {address} : index to i64"))
    function = text.op(f"arith.index_cast %external{len(task.externals)} : index to i64")
    pointer = text.op(f"llvm.inttoptr {function} : i64 to !llvm.ptr")
    text.line(f"llvm.call {pointer}({', '.join(words)}) : !llvm.ptr, ({', '.join(['i64'] * len(words))}) -> ()")
