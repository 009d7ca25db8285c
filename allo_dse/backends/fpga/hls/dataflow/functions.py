"""The C++ function of a task class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.program.tensors import StreamArray, Tensor, stream_of

from ...linear import IndexSum, atom
from ..cpp.expressions import Element, Names, element_of, element_of_dtype, identifier
from ..cpp.operations import nested
from ..cpp.streams import Carrier, StreamArg
from ..task.body import MOVED, Array, Body, whole
from ..task.pragmas import LoopPragmas, LoopSource, place
from ..task.statements import HANDLERS, translate
from .movers import Copiers, over_part
from .tensor_plan import ClassPlan, PortPlan

# Arrays for a task's parts of tensors: its own, filled at its begin and sent at its end, or its process's.


class Parameter(Frozen):
    """One parameter of a task function.

    Attributes:
        kind: a tensor is "in" or "out" by a stream, an "array" of the process, or behind a "pointer".
        number: the pid's axis, the position of the tensor port, or that of the stream among the body's streams.
    """

    kind: Literal["pid", "value", "in", "out", "array", "pointer", "stream"]
    number: int
    text: str


class Frame(Frozen):
    """Context common to the parts of a function under construction."""

    plan: ClassPlan
    body: Body
    pids: tuple[ir.Value, ...]
    copiers: Copiers

    def over_pids(self, form: IndexSum) -> IndexSum:
        """A form over mesh axes as one over the function's arguments."""
        return form.replaced({axis: atom(pid) for axis, pid in enumerate(self.pids)})


def bind_copy(frame: Frame, position: int, argument: ir.Value, name: str) -> list[Parameter]:
    """An array for a tensor argument: of the task's own and filled here, or of the process that runs it."""
    port, body = frame.plan.ports[position], frame.body
    element, kept = element_of_dtype(port.port.tensor.dtype), port.kept
    array = Array(name, element, port.port.tile_shape, tuple(map(frame.over_pids, port.box.starts)), kept)
    body.views[argument] = whole(array)
    parameters: list[Parameter] = []
    if port.is_moved:
        body.line(f"{element} {name}{port.dims};")
    else:
        const = "const " * (port.access == "table")
        parameters.append(Parameter("array", position, const + by_reference(element, name, port.dims)))
    for text in array_pragmas_of(body.pragmas, frame.plan, port, name, kept):
        body.pragma(text)
    if port.is_moved and port.copies_in:
        stream = body.names.new(f"{name}_in")
        parameters.append(Parameter("in", position, f"hls::stream< {port.word} > &{stream}"))
        body.line(_copy(frame, port, array, stream, load=True))
    if port.is_moved and port.copies_out:
        stream = body.names.new(f"{name}_out")
        body.results[argument] = _copy(frame, port, array, stream, load=False)
        parameters.append(Parameter("out", position, f"hls::stream< {port.word} > &{stream}"))
    return parameters


def by_reference(element: Element, name: str, dims: str) -> str:
    """Return an array parameter, or a variable if it has no dimensions."""
    return f"{element} {name}{dims}" if dims else f"{element} &{name}"


def tensor_names(plan: ClassPlan) -> list[str]:
    """Return the source's names of the tensor arguments."""
    (head,) = re.findall(r"^func\.func @\S*?\((.*)\) \{$", plan.task_class.body.mlir, re.MULTILINE)
    rank = len(plan.kernel.mesh)
    return re.findall(r"%([^\s:,]+): (?:memref|index)", head)[rank : rank + len(plan.ports)]


def array_pragmas_of(
    pragmas: LoopPragmas, plan: ClassPlan, port: PortPlan, variable: str, dims: Iterable[int]
) -> tuple[str, ...]:
    """Pragmas of an array that has some dimensions of a tensor: those of the tensor, and those of the argument that it
    is for the kernel."""
    known = dict.fromkeys((tensor_names(plan)[plan.ports.index(port)], port.port.tensor.name))
    shape = port.port.tile_shape
    return tuple(dict.fromkeys(text for name in known for text in pragmas.array(name, variable, dims, shape)))


def _copy(frame: Frame, port: PortPlan, array: Array, stream: str, *, load: bool) -> str:
    """The call of a function that fills an array from a stream, or sends what it holds."""
    parameters = by_reference(array.element, "part", port.dims), f"hls::stream< {port.word} > &words"
    lines = over_part(port, "part", "words", 1, load=load)
    function = frame.copiers.function(f"{'fill' if load else 'send'}_{array.name}", parameters, lines)
    frame.body.names.new(function)  # reserve the name: no variable of the task may have it
    return f"{function}({array.name}, {stream});"


class TaskFunction(Frozen):
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
    bank_pragmas: Mapping[str, Sequence[str]] = {}


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
    parameters = []
    for axis, pid in enumerate(frame.pids):
        body.atoms[pid] = names.new(f"p{axis}")
        parameters.append(Parameter("pid", axis, f"int {body.atoms[pid]}"))
    rest = arguments[len(frame.pids) :]
    tensors, rest = rest[: len(plan.ports)], rest[len(plan.ports) :]
    states, rest = rest[: len(task_class.state)], rest[len(task_class.state) :]
    externals, streams = rest[: len(task_class.externals)], rest[len(task_class.externals) :]
    declared = []
    for argument, call in zip(externals, task_class.externals, strict=True):
        name = body.externals[argument] = identifier(call.top)
        body.addresses.add(argument)
        operands = (f"{element_of_dtype(d)} {''.join(f'[{n}]' for n in shape) or '*'}" for d, shape in call.operands)
        declared.append(f'extern "C" void {name}({", ".join(operands)});')
    for op in nested_ops(plan.function):
        if op.name == "memref.get_global":
            type_ = ir.MemRefType(op.results[0].type)
            table = tables[ir.FlatSymbolRefAttr(op.attributes["name"]).value]
            body.views[op.results[0]] = whole(Array(table, element_of(type_.element_type), tuple(type_.shape)))
    wanted = tensor_names(plan)
    own_streams = _bind_streams(frame, streams, carriers)
    # All tasks fill their arrays in the order of the region's tensors, so that no two processes that load tensors can
    # wait for each other.
    order = sorted(range(len(tensors)), key=lambda p: positions[plan.ports[p].port.tensor.name])
    for position in order:
        parameters += _bind_tensor(frame, position, tensors[position], wanted[position])
    # Variables that live from call to call: static ones of the task's own instance of the function.
    for variable, argument in zip(task_class.state, states, strict=True):
        name, element = names.new(variable.name), element_of_dtype(variable.dtype)
        dims = "".join(f"[{n}]" for n in variable.shape)
        raw = variable.initial
        if variable.dtype.is_fixed:
            raw = (raw * 2.0**variable.dtype.fraction_bits).astype("int64")
        body.line(f"static {element} {name}{dims} = {nested(raw, element)};")
        body.views[argument] = whole(Array(name, element, variable.shape))
    translate(body, plan.function)
    for position in order:  # send results at the end of the task
        if tensors[position] in body.results:
            body.line(body.results[tensors[position]])
    parameters += own_streams
    text = "\n".join(body.lines)
    used = tuple(p for p in parameters if p.kind != "pid" or re.search(rf"\bp{p.number}\b", text))
    head = f"void {plan.symbol}({', '.join(p.text for p in used)}) {{"
    comment = f"// {place(task_class.location)}: tasks of kernel {task_class.kernel}, class {task_class.name}"
    template = ["template <int TASK>"] if task_class.state else []
    start = ["#pragma HLS dataflow"] if pragmas.overlaps else []
    lines = [comment, *template, head, *start, *(line for line in body.lines if line is not MOVED), "}"]
    bank_pragmas = {
        stream_of(binding).name: body.bank_pragmas.get(body.streams[argument].name, ())
        for argument, binding in zip(streams, task_class.body.streams, strict=True)
    }
    return TaskFunction(
        plan.symbol, "\n".join(lines), used, bool(task_class.state), body.sources, tuple(declared), bank_pragmas
    )


def _bind_streams(frame: Frame, arguments: Sequence[ir.Value], streams: Mapping[str, Carrier]) -> list[Parameter]:
    parameters = []
    for position, (argument, binding) in enumerate(zip(arguments, frame.plan.task_class.body.streams, strict=True)):
        array = stream_of(binding)
        ending = "s" if isinstance(binding, StreamArray) else {"get": "_in", "put": "_out"}[binding.direction]
        name, carrier = frame.body.names.new(array.name + ending), streams[array.name]
        stream = StreamArg(name, carrier, carrier.dims if array is binding else ())
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
        place_ = sum((frame.over_pids(o) * s for o, s in zip(port.origin, strides, strict=True)), IndexSum())
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
