"""Folded programs: a process executes several tasks, one after the other, on the same hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.tensors import StreamArray, StreamPort
from allo_dse.compiler.schedule.edges import EDGE_DEPTH
from allo_dse.eval.execute.run import Folding

from ...linear import IndexSum
from ..cpp.expressions import LOCALS, Names, element_of_dtype
from ..cpp.streams import Carrier
from .edge_movers import Edges
from .functions import Parameter, TaskFunction, tensor_text
from .tensor_plan import ClassPlan, PortPlan
from .tile_movers import KeptTiles, Slot, TileMover
from .top import Top, declare_stream


@dataclass
class _Fifo:
    """A FIFO and the nodes at its ends; `place` is how its users call it."""

    carrier: Carrier
    array: StreamArray
    users: dict[str, int] = field(default_factory=dict)
    place: str = ""

    @property
    def is_local(self) -> bool:
        """True if one node both puts and gets."""
        return len(self.users) == 2 and self.users["put"] == self.users["get"]


_Call = tuple[str, tuple[str | int | Slot, ...]]


@dataclass
class _Node:
    """The function of a process under construction.

    Attributes:
        number: of the node.
        known: the parameter or local stream that stands for a FIFO, a tensor or a whole array of streams.
        tiles: parts of tensors that it keeps for its tasks.
        calls: functions with their arguments, of which numbers may follow a loop.
    """

    number: int
    names: Names
    tiles: KeptTiles
    parameters: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    known: dict[object, str] = field(default_factory=dict)
    local: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)

    def parameter(self, key: object, wanted: str, text: str, argument: str) -> str:
        """Return the name of a parameter, adding a new one; `text` declares it, with `{}` for the name."""
        if key not in self.known:
            self.known[key] = self.names.new(wanted)
            self.parameters.append(text.format(self.known[key]))
            self.arguments.append(argument)
        return self.known[key]


class _UnfoldedTask(Frozen, eq=False, dict=True):
    plan: ClassPlan
    function: TaskFunction
    pid: tuple[int, ...]
    number: int

    @cached_property
    def places(self) -> dict[int, int]:
        """Start of its part of each tensor, by the position of the port."""
        ports = enumerate(self.plan.ports)
        return {number: port.place(self.pid) for number, port in ports if port.is_moved or port.is_kept}

    @property
    def moves(self) -> Iterator[tuple[PortPlan, int, str]]:
        """The parts of tensors that come "in" to its node and go "out", with their places."""
        for number, place in self.places.items():
            port = self.plan.ports[number]
            if port.copies_in:
                yield port, place, "in"
            if port.copies_out:
                yield port, place, "out"


class _Folded(Frozen):
    """Inputs of the translation of nodes."""

    top: Top
    folding: Folding
    tasks: dict[int, _UnfoldedTask]
    fifos: dict[int, _Fifo]
    written: frozenset[str]
    tiles: Mapping[tuple[str, str], TileMover]

    def fifo_of(self, port: StreamPort, pid: tuple[int, ...]) -> int:
        first = self.top.program.first_stream[port.stream.name]
        return self.folding.fifo[first + int(port.index.linear(np.array([pid]))[0])]


def with_streams(folding: Folding, count: int) -> Folding:
    """The same with further streams at the region's edge, each a FIFO of its own."""
    first = len(folding.depth)
    fifo, depth = (*folding.fifo, *range(first, first + count)), (*folding.depth, *[EDGE_DEPTH] * count)
    return replace(folding, fifo=fifo, depth=depth)


def emit_nodes(top: Top, plans: Sequence[ClassPlan], folding: Folding, edges: Edges) -> list[str]:
    """Declare FIFOs and call one process per node in the top function; returns the processes' functions."""
    tasks = _tasks(top, plans)
    used = {id(task.plan): task.plan for task in tasks.values()}.values()
    written = frozenset(port.port.tensor.name for plan in used for port in plan.ports if port.copies_out)
    movers: dict[tuple[str, str], TileMover] = {}  # of tensors that stay in DRAM, "in" and "out"
    for number, members in enumerate(folding.nodes):
        for member in (m for m in members if m in tasks):
            for port, place, does in tasks[member].moves:
                tensor = port.port.tensor
                mover = movers.setdefault((tensor.name, does), TileMover(tensor, load=does == "in"))
                # Kept parts are loaded before all tasks of the node and stored after them, whatever their turns.
                mover.add(0 if port.is_kept else folding.turn[member], port, place, number)
    folded = _Folded(top, folding, tasks, {}, written, movers)
    _declare(folded)
    for mover in folded.tiles.values():
        mover.declare(top)
    loaded = [mover for mover in folded.tiles.values() if mover.load]
    stored = {mover.tensor.name: mover for mover in folded.tiles.values() if not mover.load}
    names = {m.tensor.name: f"{m.tensor.name}_in" if m.tensor.name in stored else m.tensor.name for m in loaded}
    top.stream_names |= {fifo.array.name: fifo.place for fifo in folded.fifos.values() if not fifo.is_local}
    streamed = edges("get")
    texts = [mover.emit(top, names[mover.tensor.name]) for mover in loaded]
    for number, members in enumerate(folding.nodes):
        own = [folded.tasks[task] for task in members if task in folded.tasks]
        if not own:
            continue
        taken = Names(LOCALS | {f.symbol for f in top.functions.values()})
        parts = ((task.plan, task.plan.ports[at], place) for task in own for at, place in task.places.items())
        node = _Node(number, taken, KeptTiles(taken, [part for part in parts if part[1].is_kept], top))
        for task in own:
            called = task.function.symbol + (f"<{task.number}>" if task.function.has_state else "")
            node.calls.append((called, tuple(_value(folded, node, task, p) for p in task.function.parameters)))
        kept = ((port, does) for task in own for port, _, does in task.moves if port.is_kept)
        streams = {(port.port.tensor.name, does): _tile_stream(folded, node, port, does) for port, does in kept}
        name = top.names.new(f"node_{number}")
        texts.append(_function(name, node, streams, [top.program.task_name(task) for task in members]))
        top.lines.append(f"  ALLO_PROCESS({', '.join([name, *node.arguments])});")
    texts += [mover.emit(top, name) for name, mover in stored.items()]
    return [*streamed, *edges("put"), *texts]


def _tasks(top: Top, plans: Sequence[ClassPlan]) -> dict[int, _UnfoldedTask]:
    """The tasks that do something, by task id."""
    program, found = top.program, {}
    first = {kernel.name: start for kernel, start in zip(program.kernels, program.first_task, strict=False)}
    for plan in plans:
        if plan.symbol in top.functions:
            for pid in plan.members.tolist():
                local = int(np.ravel_multi_index(tuple(pid), plan.kernel.mesh))
                task = _UnfoldedTask(plan, top.functions[plan.symbol], tuple(pid), local)
                found[first[plan.kernel.name] + local] = task
    return found


def _declare(folded: _Folded) -> None:
    """Find the FIFOs in use, with the node at each end, and declare those between nodes.

    They are declared by stream array and depth; an array that a body indexes keeps its shape.
    """
    top = folded.top
    for number, members in enumerate(folded.folding.nodes):
        for task in (folded.tasks[t] for t in members if t in folded.tasks):
            for port in task.plan.task_class.stream_ports:
                own = folded.fifo_of(port, task.pid)
                if own not in folded.fifos:
                    carrier = top.carriers[port.stream.name].holding(folded.folding.depth[own])
                    folded.fifos[own] = _Fifo(carrier, port.stream)
                folded.fifos[own].users[port.direction] = number
    whole = {
        binding.name
        for task in folded.tasks.values()
        for binding in task.plan.task_class.body.streams
        if isinstance(binding, StreamArray)
    }
    sets: dict[tuple[str, int], list[_Fifo]] = {}
    for number in sorted(folded.fifos):
        fifo = folded.fifos[number]
        if fifo.array.name in whole:
            first = top.program.first_stream[fifo.array.name]
            fifo.place = "".join(f"[{int(i)}]" for i in np.unravel_index(number - first, fifo.array.shape))
        elif not fifo.is_local:
            sets.setdefault((fifo.array.name, fifo.carrier.depth), []).append(fifo)
    for array in top.program.streams:
        if array.name in whole:
            name = declare_stream(top, array.name, top.carriers[array.name], array.shape)
            top.stream_names[array.name] = name
            for fifo in folded.fifos.values():
                fifo.place = name + fifo.place if fifo.array.name == array.name else fifo.place
    for (wanted, _), alike in sets.items():
        dims = (len(alike),) if len(alike) > 1 else ()
        name = declare_stream(top, wanted, alike[0].carrier, dims)
        for position, fifo in enumerate(alike):
            fifo.place = f"{name}[{position}]" if dims else name


def _value(folded: _Folded, node: _Node, task: _UnfoldedTask, parameter: Parameter) -> str | int | Slot:
    """An argument of a task's call inside its node."""
    if parameter.kind == "pid":
        return task.pid[parameter.number]
    if parameter.kind == "stream":
        return _stream(folded, node, task, task.plan.task_class.body.streams[parameter.number])
    port = task.plan.ports[parameter.number]
    tensor, top = port.port.tensor, folded.top
    key = ("tensor", tensor.name)
    if parameter.kind in ("in", "out"):
        return _tile_stream(folded, node, port, parameter.kind)
    if parameter.kind == "array":
        return node.tiles.argument(port, task.places[parameter.number])
    if parameter.kind == "value":
        element = element_of_dtype(tensor.dtype)
        return node.parameter(key, tensor.name, f"{element} {{}}", top.value(tensor))
    writes = tensor.name in folded.written
    if port.access == "onchip" and key not in node.known:
        text = tensor_text(tensor, "{}", writes=writes)
        node.parameter(key, tensor.name, text, top.memory(task.plan, port, tensor.name, writes=writes))
    if key not in node.known:
        argument = top.argument(tensor, tensor.name, writes=writes, raw=True)
        const = "" if writes else "const "
        node.parameter(key, tensor.name, f"{const}{element_of_dtype(tensor.dtype)} *{{}}", argument)
    return node.known[key]


def _tile_stream(folded: _Folded, node: _Node, port: PortPlan, does: str) -> str:
    """The node's end of a stream from or to what moves a tensor."""
    name = port.port.tensor.name
    mover = folded.tiles[name, does]
    return node.parameter((name, does), mover.streams, f"hls::stream< {port.word} > &{{}}", mover.stream(node.number))


def _stream(folded: _Folded, node: _Node, task: _UnfoldedTask, binding: StreamPort | StreamArray) -> str:
    if isinstance(binding, StreamArray):
        carrier, name = folded.top.carriers[binding.name], folded.top.stream_names[binding.name]
        dims = "".join(f"[{n}]" for n in carrier.dims)
        text = f"{carrier.type} (&{{}}){dims}" if dims else f"hls::stream< {carrier.token} > &{{}}"
        return node.parameter(("streams", binding.name), binding.name, text, name)
    number = folded.fifo_of(binding, task.pid)
    fifo = folded.fifos[number]
    if not fifo.is_local or fifo.place:
        return node.parameter(number, binding.stream.name, f"hls::stream< {fifo.carrier.token} > &{{}}", fifo.place)
    if number not in node.known:
        name = node.known[number] = node.names.new(binding.stream.name)
        node.local.append(f'  {fifo.carrier.type} {name}("{name}");')
        node.local.append(f"#pragma HLS stream variable={name} depth={fifo.carrier.depth}")
    return node.known[number]


def _function(name: str, node: _Node, streams: Mapping[tuple[str, str], str], tasks: Sequence[str]) -> str:
    """The function of a node: the calls of its tasks, those of a run of equal calls in a loop.

    Args:
        streams: by tensor and "in" or "out", those of the parts that it keeps.
    """
    shown = ", ".join(tasks[:4]) + (f", ... {tasks[-1]}" if len(tasks) > 4 else "")
    lines = [f"// {len(tasks)} tasks one after the other: {shown}", f"void {name}({', '.join(node.parameters)}) {{"]
    functions = [function for function, _ in node.calls]
    shared = [f for f in dict.fromkeys(functions) if functions.count(f) > 1 and "<" not in f]
    # Tasks of a node run in turn: one instance of a function serves all of its calls, as the fold intends.
    lines += [f"#pragma HLS allocation function instances={function} limit=1" for function in shared]
    lines += [*node.local, *node.tiles.declared(), *node.tiles.moved(streams, load=True)]
    position = 0
    while position < len(node.calls):
        length, steps = _run(node.calls[position:])
        function, arguments = node.calls[position]
        if length == 1:
            lines.append(f"  {function}({', '.join(_moving(a, 0) for a in arguments)});")
        else:
            moving = [_moving(a, s) for a, s in zip(arguments, steps, strict=True)]
            lines.append(f"  for (int t = 0; t < {length}; t++) {{")
            lines.append(f"    {function}({', '.join(moving)});")
            lines.append("  }")
        position += length
    return "\n".join([*lines, *node.tiles.moved(streams, load=False), "}"])


def _run(calls: Sequence[_Call]) -> tuple[int, tuple[int, ...]]:
    """Return the length of the leading run of calls whose numbers change by equal steps, and those steps."""
    if len(calls) < 2 or (steps := _steps(calls[0], calls[1])) is None:
        return 1, ()
    length = 2
    while length < len(calls) and _steps(calls[length - 1], calls[length]) == steps:
        length += 1
    return length, steps


def _steps(first: _Call, second: _Call) -> tuple[int, ...] | None:
    """Return the differences of two calls' numbers; None if they differ in anything else."""
    if first[0] != second[0]:
        return None
    steps = []
    for a, b in zip(first[1], second[1], strict=True):
        if isinstance(a, int) and isinstance(b, int):
            steps.append(b - a)
        elif isinstance(a, Slot) and isinstance(b, Slot) and a.array == b.array:
            steps.append(b.number - a.number)
        elif a == b:
            steps.append(0)
        else:
            return None
    return tuple(steps)


def _moving(argument: str | int | Slot, step: int) -> str:
    if isinstance(argument, str):
        return argument
    if isinstance(argument, Slot):
        return f"{argument.array}[{_moving(argument.number, step)}]"
    return IndexSum(argument, {"t": step} if step else {}).text(str)
