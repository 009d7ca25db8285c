"""A program as a circuit: the kernel of each task, its port connections, and the FIFOs between tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.mlir.bindings import arith, ir, memref, nested_ops, scf
from allo_dse.common.mlir.dialect import Get, Put, text_context
from allo_dse.common.mlir.jit import run_passes
from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, StreamArray
from allo_dse.simulator.codegen.stream_ops import find

from .emitter import Emitter
from .tools import RtlError, RtlKernel, Site

if TYPE_CHECKING:
    from allo_dse.eval.execute.run import Folding

# Bit width of a kernel's indices: every bit of a loop counter costs registers and adders of the circuit.
#
# Sums and products may wrap around, since addresses are taken modulo the width. Compared, divided or converted values
# must be exact. So each index of the structured form gets an interval, and the largest determines the width.


Interval = tuple[int, int]

WIDEST = 32
_ANY: Interval = (-(2 ** (WIDEST - 1)), 2 ** (WIDEST - 1) - 1)


def index_width(function: ir.OpView, mesh: tuple[int, ...]) -> int:
    """Bits, with sign, that hold every index of a function in structured control flow (scf, arith, memref)."""
    known: dict[str, Interval] = {}
    for number, extent in enumerate(mesh):
        known[function.regions[0].blocks[0].arguments[number].get_name()] = (0, extent - 1)
    for op in nested_ops(function):
        if op.name == "scf.for":
            low, high = _of(known, op.operands[0])[0], _of(known, op.operands[1])[1]
            step = _of(known, op.operands[2])[1]  # the counter's last value, beyond the bound, is compared too
            known[op.regions[0].blocks[0].arguments[0].get_name()] = (low, max(low, min(high + step, _ANY[1])))
        elif len(op.results) == 1 and _is_index(op.results[0]):
            known[op.results[0].get_name()] = _interval(op, known)
    values = [_of(known, v) for op in nested_ops(function) for v in _indices(op)]
    touching = find(function, "memref.load", "memref.store")
    arrays = (v.type for op in touching for v in op.operands if isinstance(v.type, ir.MemRefType))
    sizes = [(0, math.prod(ir.MemRefType(array).shape)) for array in arrays]
    bits = (max((-1 - low).bit_length() if low < 0 else 0, high.bit_length()) + 1 for low, high in values + sizes)
    return max([2, *bits])


def _indices(op: ir.Operation) -> list[ir.Value]:
    own: list[ir.Value] = list(op.results)
    for region in op.regions:
        own += [argument for block in region.blocks for argument in block.arguments]
    return [value for value in own if _is_index(value)] if op.name != "func.func" else []


def _is_index(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IndexType)


def _of(known: dict[str, Interval], value: ir.Value) -> Interval:
    return known.get(value.get_name(), _ANY)


def _interval(op: ir.Operation, known: dict[str, Interval]) -> Interval:
    if op.name == "arith.constant":
        value = ir.IntegerAttr(op.attributes["value"]).value
        return value, value
    operands = [_of(known, value) for value in op.operands if _is_index(value)]
    if op.name == "arith.index_cast":
        width = ir.IntegerType(op.operands[0].type).width
        return (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if width < WIDEST else _ANY
    combine = _COMBINE.get(op.name)
    if combine is None or not operands:
        return _ANY
    low, high = combine(*operands)
    return (low, high) if _ANY[0] <= low and high <= _ANY[1] else _ANY


def _products(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    return min(a[0], -abs(a[1]) if b[0] < 0 else 0), max(a[1], abs(a[0]) if b[0] < 0 else 0)


def _remainder(a: Interval, b: Interval) -> Interval:
    most = max(abs(b[0]), abs(b[1])) - 1
    return (-most if a[0] < 0 else 0), most


_COMBINE: dict[str, Callable[[Interval, Interval], Interval]] = {
    "arith.addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "arith.subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "arith.muli": _products,
    "arith.divsi": _quotient,
    "arith.remsi": _remainder,
    "arith.select": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "arith.minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "arith.maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


# A task body as the flat function that CIRCT turns into a circuit.
#
#     func.func @gemm_t0(%p0: i4, %m0: memref<8xi16>, %m1: memref<1xi16>) { ^bb0: ... cf.br ... }
#
# Memory and streams become ports. Every load, store, get and put in the text has an array argument of its own (CIRCT
# allows one load per array), which becomes an address channel and a data channel. A stream is an array of one element:
# a load takes a token, a store puts one, and either is acknowledged when done. Control leaves a block of the function
# only when all its accesses are acknowledged. So accesses that must not overtake each other get blocks of their own:
# all stream operations, and accesses to one array with a store among them, unless the stored value depends on the
# loaded one.


STRUCTURED = (
    "builtin.module(func.func(convert-linalg-to-loops),fold-memref-alias-ops,func.func(lower-affine),canonicalize,cse)"
)
FLAT = "builtin.module(func.func(convert-scf-to-cf,mem2reg),cse,sccp)"
"""Not canonicalized: CIRCT's circuits get stuck where more than two branches meet in one block. Constants
(`x - x`) are found here, as CIRCT does not lower those that it finds itself."""


def lower_kernel(task_class: TaskClass, mesh: tuple[int, ...], *, overlap: bool = False) -> RtlKernel:
    """Lower the body of a task class.

    Args:
        overlap: let stream operations of one iteration on different streams proceed at the same time. Faster circuits,
            which may get by with less deep streams than the program.

    Raises:
        RtlError: for what the flow cannot do: floating point, polling, variables that live from call to call, vendor
            kernels, streams whose number is computed.
    """
    _check(task_class)
    with text_context():
        module = ir.Module.parse(task_class.body.mlir)
        for op in find(module, "df.get_block", "df.put_block"):
            _to_elements(op)
        run_passes(module, STRUCTURED)
        width = index_width(_function(module), mesh)
        run_passes(module, FLAT)
        emitter = Emitter(task_class, len(mesh), width, overlap, _constant_arrays(module))
        return emitter.emit(_function(module))


def _check(task_class: TaskClass) -> None:
    name = f"task class {task_class.name} of {task_class.kernel}"
    if task_class.polls:
        raise RtlError(f"{name} polls its streams", hint="the open RTL flow has get() and put() only")
    if task_class.state or task_class.externals:
        raise RtlError(f"{name} has variables that outlive a call, or vendor kernels", hint="use the simulator")
    if any(isinstance(binding, StreamArray) for binding in task_class.body.streams):
        raise RtlError(f"{name} computes which stream it uses", hint="index streams by the pid only")


def _function(module: ir.Module) -> ir.OpView:
    return next(op for op in module.body.operations if op.operation.name == "func.func")


def _constant_arrays(module: ir.Module) -> dict[str, tuple[int, ...]]:
    """Elements of the module's constant arrays, by symbol."""
    found = {}
    for op in find(module, "memref.global"):
        values = ir.DenseElementsAttr(op.attributes["initial_value"])
        if not isinstance(ir.ShapedType(values.type).element_type, ir.IntegerType):
            raise RtlError("a constant array is not of integers", hint="integer kernels only")
        found[ir.StringAttr(op.attributes["sym_name"]).value] = tuple(
            int(value) for value in ir.DenseIntElementsAttr(values)
        )
    return found


def _to_elements(op: ir.Operation) -> None:
    """A block is sent and received element by element: circuits have no wide tokens."""
    shape = ir.MemRefType(op.operands[1].type).shape
    stream, buffer = op.operands[0], op.operands[1]
    index = ir.IndexType.get()
    point = ir.InsertionPoint(op)
    counters = []
    for extent in shape:
        with point:
            low, high, one = (arith.ConstantOp(index, value).result for value in (0, extent, 1))
            loop = scf.ForOp(low, high, one)
        with ir.InsertionPoint(loop.body):
            end = scf.YieldOp([])
        counters.append(loop.induction_variable)
        point = ir.InsertionPoint(end)
    with point:
        if op.name == "df.get_block":
            element = ir.MemRefType(buffer.type).element_type
            memref.StoreOp(Get(stream, op.attributes["op"], element).value, buffer, counters)
        else:
            Put(stream, op.attributes["op"], memref.LoadOp(buffer, counters).result)
    op.erase()


@dataclass(frozen=True)
class Tile:
    """Location of a task's part of a tensor: the part's row-major shape, and strides and offset in the tensor."""

    tensor: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Task(Frozen):
    """One task: its kernel, the values of its pid, its tensors' parts and the numbers of its FIFOs.

    Attributes:
        node: the processing element it runs on.
        after: the task that runs there before it.
    """

    name: str
    kernel: int
    pid: tuple[int, ...]
    tiles: tuple[Tile, ...]
    streams: tuple[int, ...]
    node: int
    after: int | None = None


class Fifo(Frozen):
    """A stream: bits of a word, words it holds. A block is as many words as it has elements."""

    name: str
    width: int
    depth: int


class Circuit(Frozen):
    """Everything the test bench and synthesis need.

    Attributes:
        tensors: per tensor bits of an element and number of elements.
    """

    kernels: tuple[RtlKernel, ...]
    tasks: tuple[Task, ...]
    fifos: tuple[Fifo, ...]
    tensors: dict[str, tuple[int, int]]

    @property
    def sites(self) -> list[tuple[int, Task, int, Site]]:
        """Ports of the tasks: number of the task, task, position among the sites of its kernel, site."""
        tasks = enumerate(self.tasks)
        return [(number, task, *one) for number, task in tasks for one in enumerate(self.kernels[task.kernel].sites)]


def build_circuit(
    program: CompiledProgram, depths: Mapping[str, int], *, overlap: bool = False, folding: Folding | None = None
) -> Circuit:
    """The circuit of a program.

    Args:
        depths: stream depths by array name, where they differ from the declared ones.
        overlap: see `lower_kernel`.
        folding: which tasks run on one processing element, and which FIFO carries each stream, with depths; by default
            every task and every stream has its own.

    Raises:
        RtlError: for what the flow cannot do.
    """
    for name in depths:
        if name not in {array.name for array in program.streams}:
            raise RtlError(f"{program.name} has no stream {name!r}", hint="name a stream array of the program")
    for tensor in program.tensors:
        if tensor.dtype.is_float:
            raise RtlError(f"tensor {tensor.name} is of {tensor.dtype}", hint="the open RTL flow has integers only")
    kernels: list[RtlKernel] = []
    tasks: list[Task] = []
    for position, kernel in enumerate(program.kernels):
        numbers = np.arange(program.first_task[position], program.first_task[position + 1])
        pids = program.pids(position, numbers)
        classes = kernel.class_of(pids)
        first = len(kernels)
        kernels += [lower_kernel(task_class, kernel.mesh, overlap=overlap) for task_class in kernel.classes]
        for row, which in enumerate(classes):
            task = _task(program, kernel.classes[which], first + int(which), pids[row : row + 1])
            tasks.append(replace(task, node=len(tasks)))
    fifos = [fifo for array in program.streams for fifo in _fifos(array, depths.get(array.name, array.depth))]
    if folding is not None:
        tasks, fifos = _folded_tasks(tasks, folding), _folded_fifos(program, fifos, folding)
    tensors = {t.name: (t.dtype.bits, max(1, math.prod(t.shape))) for t in program.tensors}
    return Circuit(tuple(kernels), tuple(tasks), tuple(fifos), tensors)


def _task(program: CompiledProgram, task_class: TaskClass, kernel: int, pid: IntArray) -> Task:
    tiles = tuple(
        Tile(port.tensor.name, port.tile_shape, port.tensor.strides, int(port.offsets(pid)[0]))
        for port in sorted(task_class.tensor_ports, key=lambda port: port.arg)
    )
    streams = tuple(
        program.first_stream[binding.stream.name] + int(binding.index.linear(pid)[0])
        for binding in task_class.body.streams
        if not isinstance(binding, StreamArray)
    )
    values = tuple(int(p) for p in pid[0])
    return Task("_".join([task_class.kernel, *map(str, values)]), kernel, values, tiles, streams, node=0)


def _folded_tasks(tasks: list[Task], folding: Folding) -> list[Task]:
    """Tasks with their nodes and predecessors, at the FIFOs of the fold."""
    found = [replace(task, streams=tuple(folding.fifo[stream] for stream in task.streams)) for task in tasks]
    for node, members in enumerate(folding.nodes):
        for before, number in zip((None, *members), members, strict=False):
            found[number] = replace(found[number], node=node, after=before)
    return found


def _folded_fifos(program: CompiledProgram, fifos: list[Fifo], folding: Folding) -> list[Fifo]:
    """The fold's FIFOs, named after the first of the streams that they carry."""
    blocks = [max(1, math.prod(array.block)) for array in program.streams for _ in range(array.count)]
    carried = {fifo: stream for stream, fifo in reversed(list(enumerate(folding.fifo)))}
    return [
        replace(fifos[carried[number]], depth=depth * blocks[carried[number]])
        for number, depth in enumerate(folding.depth)
    ]


def _fifos(array: StreamArray, depth: int) -> list[Fifo]:
    if depth < 1:
        raise RtlError(f"stream {array.name} cannot hold {depth} tokens", hint="a depth is at least 1")
    if array.dtype.is_float:
        raise RtlError(f"stream {array.name} is of {array.dtype}", hint="the open RTL flow has integers only")
    names = [array.name]
    if array.shape:
        names = [f"{array.name}[{', '.join(map(str, index))}]" for index in np.ndindex(*array.shape)]
    return [Fifo(name, array.dtype.bits, depth * max(1, math.prod(array.block))) for name in names]
