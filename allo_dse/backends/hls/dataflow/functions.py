"""The C++ function of a task class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from allo_dse.ir.bindings import ir
from allo_dse.ir.nested_ops import nested_ops
from allo_dse.program.directive import Directive
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import ExternalCall
from allo_dse.program.tensors import Tensor

from ..cpp.constants import nested
from ..cpp.elements import element_of, element_of_dtype
from ..cpp.linear import Linear
from ..cpp.names import Names, identifier
from ..cpp.streams import Carrier, StreamArg
from ..task.arrays import Array, whole
from ..task.body import MOVED, Body
from ..task.pragmas import LoopPragmas, LoopSource, place
from ..task.statements import HANDLERS, translate
from .local_copies import Frame, Parameter, array_pragmas_of, bind_copy, copy_out, tensor_names
from .tensor_movers import Copiers
from .tensor_plan import ClassPlan


class TaskFunction(Struct, frozen=True):
    """C++ of a task class.

    Attributes:
        parameters: in the order of the arguments.
        has_state: whether it is a template over the number of the task, because it keeps variables between calls.
        loops: per label of a loop, where it stands in the source.
        externals: vendor kernels that it calls, with the types of their arguments.
    """

    symbol: str
    text: str
    parameters: tuple[Parameter, ...]
    has_state: bool
    loops: dict[str, LoopSource]
    externals: tuple[str, ...] = ()


def task_function(
    plan: ClassPlan,
    directives: tuple[Directive, ...],
    regions: frozenset[str],
    carriers: Mapping[str, Carrier],
    tables: dict[str, str],
    positions: dict[str, int],
    copiers: Copiers,
) -> TaskFunction:
    """Translate a task class.

    Args:
        carriers: how streams are built, by array.
        tables: C++ names of the body's constant arrays.
        positions: of tensors among the region's arguments.
        copiers: of the kernel.
    """
    task_class = plan.task_class
    arguments = list(plan.function.regions[0].blocks[0].arguments)
    names = Names({plan.symbol, *tables.values()})
    pragmas = LoopPragmas(task_class, directives, regions)
    body = Body(names, pragmas, HANDLERS)
    frame = Frame(plan, body, tuple(arguments[: len(plan.kernel.mesh)]), copiers)
    parameters = _bind_pids(frame)
    rest = arguments[len(frame.pids) :]
    tensors, rest = rest[: len(plan.ports)], rest[len(plan.ports) :]
    states, rest = rest[: len(task_class.state)], rest[len(task_class.state) :]
    externals, streams = rest[: len(task_class.externals)], rest[len(task_class.externals) :]
    for argument, call in zip(externals, task_class.externals, strict=True):
        body.externals[argument] = identifier(call.top)
        body.addresses.add(argument)
    _bind_tables(frame, tables)
    wanted = tensor_names(plan)
    own_streams = _bind_streams(frame, streams, carriers)
    # All tasks fill their arrays in the order of the region's tensors, so that no two processes that load tensors can
    # wait for each other.
    order = sorted(range(len(tensors)), key=lambda p: positions[plan.ports[p].port.tensor.name])
    for position in order:
        parameters += _bind_tensor(frame, position, tensors[position], wanted[position])
    _bind_state(frame, states)
    translate(body, plan.function)
    for position in order:
        copy_out(frame, tensors[position])
    parameters += own_streams
    text = "\n".join(body.lines)
    used = tuple(p for p in parameters if p.kind != "pid" or re.search(rf"\bp{p.number}\b", text))
    head = f"void {plan.symbol}({', '.join(p.text for p in used)}) {{"
    comment = f"// {place(task_class.location)}: tasks of kernel {task_class.kernel}, class {task_class.name}"
    template = ["template <int TASK>"] if task_class.state else []
    start = ["#pragma HLS dataflow"] if pragmas.overlaps else []
    lines = [comment, *template, head, *start, *(line for line in body.lines if line is not MOVED), "}"]
    declared = tuple(_external(call) for call in task_class.externals)
    return TaskFunction(plan.symbol, "\n".join(lines), used, bool(task_class.state), body.sources, declared)


def _external(call: ExternalCall) -> str:
    """The declaration of a vendor kernel."""
    operands = ", ".join(
        f"{element_of_dtype(dtype)} {''.join(f'[{n}]' for n in shape) or '*'}" for dtype, shape in call.operands
    )
    return f'extern "C" void {identifier(call.top)}({operands});'


def _bind_pids(frame: Frame) -> list[Parameter]:
    parameters = []
    for axis, pid in enumerate(frame.pids):
        name = frame.body.names.new(f"p{axis}")
        frame.body.atoms[pid] = name
        parameters.append(Parameter("pid", axis, f"int {name}"))
    return parameters


def _bind_tables(frame: Frame, tables: dict[str, str]) -> None:
    """Bind the results of `memref.get_global` to their constant tables."""
    for op in nested_ops(frame.plan.function):
        if op.name == "memref.get_global":
            type_ = ir.MemRefType(op.results[0].type)
            name = tables[ir.FlatSymbolRefAttr(op.attributes["name"]).value]
            frame.body.views[op.results[0]] = whole(Array(name, element_of(type_.element_type), tuple(type_.shape)))


def _bind_streams(frame: Frame, arguments: Sequence[ir.Value], streams: Mapping[str, Carrier]) -> list[Parameter]:
    parameters = []
    for position, (argument, binding) in enumerate(zip(arguments, frame.plan.task_class.body.streams, strict=True)):
        array = binding if isinstance(binding, StreamArray) else binding.stream
        is_array = isinstance(binding, StreamArray) and bool(array.shape)
        ending = "s" if isinstance(binding, StreamArray) else {"get": "_in", "put": "_out"}[binding.direction]
        name = frame.body.names.new(array.name + ending)
        carrier = streams[array.name]
        stream = StreamArg(name, carrier, carrier.dims if is_array else ())
        frame.body.streams[argument] = stream
        parameters.append(Parameter("stream", position, stream.text))
    return parameters


def _bind_tensor(frame: Frame, position: int, argument: ir.Value, wanted: str) -> list[Parameter]:
    """A tensor argument: a value, memory behind a pointer, or an array of the task's own that is filled here."""
    port, body = frame.plan.ports[position], frame.body
    if port.access == "unused":
        return []
    tensor, name = port.port.tensor, body.names.new(wanted)
    element = element_of_dtype(tensor.dtype)
    if port.access == "value":
        body.views[argument] = whole(Array(name, element, ()))
        return [Parameter("value", position, f"{element} {name}")]
    strides = tensor.strides
    if port.access == "shared":
        place_ = sum((frame.over_pids(o) * s for o, s in zip(port.origin, strides, strict=True)), Linear())
        body.views[argument] = whole(Array(name, element, port.port.tile_shape, pointer=(place_, strides)))
        const = "" if port.copies_out else "const "
        return [Parameter("pointer", position, f"{const}{element} *{name}")]
    if port.access == "onchip":
        for text in array_pragmas_of(body.pragmas, frame.plan, port, name, range(len(tensor.shape))):
            body.pragma(text)
        origin = tuple(frame.over_pids(o) * -1 for o in port.origin)
        body.views[argument] = whole(Array(name, element, port.port.tile_shape, origin))
        return [Parameter("pointer", position, tensor_text(tensor, name, writes=port.copies_out))]
    return bind_copy(frame, position, argument, name)


def tensor_text(tensor: Tensor, name: str, *, writes: bool) -> str:
    """The declaration of a whole tensor as an array parameter."""
    dims = "".join(f"[{n}]" for n in tensor.shape)
    return f"{'' if writes else 'const '}{element_of_dtype(tensor.dtype)} {name}{dims}"


def _bind_state(frame: Frame, arguments: Sequence[ir.Value]) -> None:
    """Variables that live from call to call: static ones of the task's own instance of the function."""
    body = frame.body
    for variable, argument in zip(frame.plan.task_class.state, arguments, strict=True):
        name, element = body.names.new(variable.name), element_of_dtype(variable.dtype)
        dims = "".join(f"[{n}]" for n in variable.shape)
        raw = variable.initial
        if variable.dtype.is_fixed:
            raw = (raw * 2.0**variable.dtype.fraction_bits).astype("int64")
        body.line(f"static {element} {name}{dims} = {nested(raw, element)};")
        body.views[argument] = whole(Array(name, element, variable.shape))
