"""A task body as the flat function that CIRCT makes a circuit of.

    func.func @gemm_t0(%p0: i4, %m0: memref<8xi16>, %m1: memref<1xi16>) { ^bb0: ... cf.br ... }

Memory and streams become ports: every place that loads or stores, and every get or put, has an array argument of its
own (CIRCT allows one load per array), which becomes an address channel and a data channel. A stream is an array of one
element: loading it takes a token, storing it puts one, and either is answered when it is done. A block of the function
is left only when all accesses in it have been answered. So accesses that must not overtake each other are put into
blocks of their own: all stream operations, and accesses to one array of which one is a store, unless the stored value
comes from what was loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ...frontend.program import StreamArray, TaskClass
from ...ir.bindings import arith, ir, memref, scf
from ...ir.dialect import Get, Put, new_context
from ...ir.jit import run_passes
from ...ir.stream_ops import find
from .errors import RtlError
from .widths import index_width

STRUCTURED = "builtin.module(func.func(convert-linalg-to-loops,lower-affine),fold-memref-alias-ops,canonicalize,cse)"
FLAT = "builtin.module(func.func(convert-scf-to-cf,mem2reg,arith-expand),canonicalize,cse)"

Kind = Literal["load", "store", "get", "put"]


@dataclass(frozen=True)
class Site:
    """A place in a kernel that accesses memory or a stream: one port of the circuit.

    Attributes:
        target: position of the tensor or stream among the kernel's, or of the local array.
        space: what `target` counts.
        width: bits of an element. words: elements of the array (1 for streams).
    """

    kind: Kind
    space: Literal["tensor", "local", "stream"]
    target: int
    width: int
    words: int


@dataclass(frozen=True)
class RtlKernel:
    """A task class ready for CIRCT.

    Attributes:
        mlir: text of a module with one function `symbol`: the pid, then one array per site.
        index_bits: width of the pid arguments. pids: their number.
        locals_: bits and words of the arrays that live in a task.
    """

    symbol: str
    mlir: str
    index_bits: int
    pids: int
    sites: tuple[Site, ...]
    locals_: tuple[tuple[int, int], ...]


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
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(task_class.body.mlir)
        for op in find(module, lambda name: name in ("df.get_block", "df.put_block")):
            _to_elements(op)
        run_passes(module, STRUCTURED)
        width = index_width(_function(module), mesh)
        run_passes(module, FLAT)
        emitter = _Emitter(task_class, len(mesh), width, overlap)
        return emitter.emit(_function(module))


def _check(task_class: TaskClass) -> None:
    name = f"task class {task_class.name} of {task_class.kernel}"
    if task_class.polls:
        raise RtlError(f"{name} polls its streams", hint="the open RTL flow has get() and put() only")
    if task_class.state or task_class.externals:
        raise RtlError(f"{name} has variables that outlive a call, or vendor kernels", hint="use the simulator")
    if any(isinstance(binding, StreamArray) for binding in task_class.body.streams):
        raise RtlError(f"{name} computes which stream it uses", hint="index streams by the pid only")


def _function(module: Any) -> Any:
    return next(op for op in module.body.operations if op.operation.name == "func.func")


def _to_elements(op: Any) -> None:
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
            memref.StoreOp(Get(element, stream, op.attributes["op"]).value, buffer, counters)
        else:
            Put(stream, memref.LoadOp(buffer, counters).result, op.attributes["op"])
    op.erase()


@dataclass
class _Block:
    """What has been accessed since the block began, and the values that have been made there.

    Constants and addresses are made in every block that needs them: what is passed from block to block is a channel.
    """

    made: dict[str, str] = field(default_factory=dict)
    streams: set[int] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    loads: dict[str, list[str]] = field(default_factory=dict)


class _Emitter:
    """Writes the flat function: narrow indices, row-major addresses, one array argument per access."""

    def __init__(self, task_class: TaskClass, pids: int, width: int, overlap: bool) -> None:
        self.task_class, self.pids, self.width, self.overlap = task_class, pids, width, overlap
        self.sites: list[Site] = []
        self.locals: list[tuple[int, int]] = []
        self.local_number: dict[str, int] = {}
        self.lines: list[str] = []
        self.fresh = 0
        self.block = _Block()
        self.sources: dict[str, set[str]] = {}
        ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
        self.tensors = {pids + number: number for number in range(len(ports))}
        self.streams = {pids + len(ports) + number: number for number in range(len(task_class.body.streams))}

    def emit(self, function: Any) -> RtlKernel:
        self.entry = function.regions[0].blocks[0]
        blocks = list(function.regions[0].blocks)
        self.blocks = blocks
        for number, block in enumerate(blocks):
            if number:
                arguments = ", ".join(f"{self._value(a)}: {self._type(a.type)}" for a in block.arguments)
                self.lines.append(f"^bb{number}{f'({arguments})' if arguments else ''}:")
            self.block = _Block()
            for op in block.operations:
                self._op(op.operation)
        symbol = self.task_class.body.symbol
        pids = [f"%p{n}: i{self.width}" for n in range(self.pids)]
        arrays = [f"%m{n}: memref<{site.words}xi{site.width}>" for n, site in enumerate(self.sites)]
        text = f"func.func @{symbol}({', '.join([*pids, *arrays])}) {{\n" + "\n".join(self.lines) + "\n}\n"
        return RtlKernel(symbol, text, self.width, self.pids, tuple(self.sites), tuple(self.locals))

    def _op(self, op: Any) -> None:
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.name in _BINARY:
            self._line(op, f"{op.name} {self._values(op)} : {self._type(op.results[0].type)}")
        else:
            raise RtlError(
                f"{self.task_class.kernel}: the open RTL flow has no `{op.name}`", hint="integer kernels only"
            )

    def _line(self, op: Any, text: str) -> None:
        result = self._value(op.results[0])
        self.sources[result] = set().union(*(self.sources.get(self._value(v), set()) for v in op.operands))
        self.lines.append(f"  {result} = {text}")

    def _value(self, value: Any) -> str:
        name = value.get_name().lstrip("%")
        if isinstance(value, ir.BlockArgument):
            return f"%p{value.arg_number}" if value.owner == self.entry else f"%v{name}"
        constant = _CONSTANTS.get(value.owner.name)
        return f"%v{name}" if constant is None else self._constant(constant(value.owner), self._type(value.type))

    def _values(self, op: Any) -> str:
        return ", ".join(self._value(v) for v in op.operands)

    def _type(self, type_: Any) -> str:
        if isinstance(type_, ir.IndexType):
            return f"i{self.width}"
        if isinstance(type_, ir.IntegerType):
            return f"i{type_.width}"
        raise RtlError(
            f"{self.task_class.kernel}: the open RTL flow has no values of type {type_}", hint="integer kernels only"
        )

    def _new(self, text: str) -> str:
        """A value of this block; the same text twice gives the same value."""
        if text not in self.block.made:
            self.fresh += 1
            self.lines.append(f"  %x{self.fresh} = {text}")
            self.block.made[text] = f"%x{self.fresh}"
        return self.block.made[text]

    def _constant(self, value: int, type_: str) -> str:
        return self._new(f"arith.constant {('true' if value else 'false') if type_ == 'i1' else f'{value} : {type_}'}")

    def _cut(self) -> None:
        """End the block here, so that what follows waits for the accesses so far."""
        self.fresh += 1
        self.lines += [f"  cf.br ^cut{self.fresh}", f"^cut{self.fresh}:"]
        self.block = _Block()
        self.sources = {}

    # operations ---------------------------------------------------------------------------------------------------

    def _compare(self, op: Any) -> None:
        predicate = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
        self._line(op, f"arith.cmpi {predicate}, {self._values(op)} : {self._type(op.operands[0].type)}")

    def _select(self, op: Any) -> None:
        self._line(op, f"arith.select {self._values(op)} : {self._type(op.results[0].type)}")

    def _extreme(self, op: Any) -> None:
        name, type_ = op.name.removeprefix("arith."), self._type(op.results[0].type)
        predicate = {"minsi": "slt", "maxsi": "sgt", "minui": "ult", "maxui": "ugt"}[name]
        first = self._new(f"arith.cmpi {predicate}, {self._values(op)} : {type_}")
        self._line(op, f"arith.select {first}, {self._values(op)} : {type_}")

    def _resize(self, op: Any) -> None:
        """A conversion between integers, or between an integer and an index, which is one too."""
        source, target = self._type(op.operands[0].type), self._type(op.results[0].type)
        before, after = int(source[1:]), int(target[1:])
        value = self._value(op.operands[0])
        if before == after:
            self._line(op, f"arith.ori {value}, {self._constant(0, target)} : {target}")
            return
        wider = "arith.extui" if op.name in ("arith.extui", "arith.index_castui") else "arith.extsi"
        self._line(op, f"{wider if after > before else 'arith.trunci'} {value} : {source} to {target}")

    def _branch(self, op: Any) -> None:
        self.lines.append(f"  cf.br {self._target(op.successors[0], list(op.operands))}")

    def _conditional(self, op: Any) -> None:
        operands = list(op.operands)
        sizes = [int(n) for n in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
        yes, no = operands[1 : 1 + sizes[1]], operands[1 + sizes[1] :]
        targets = f"{self._target(op.successors[0], yes)}, {self._target(op.successors[1], no)}"
        self.lines.append(f"  cf.cond_br {self._value(operands[0])}, {targets}")

    def _target(self, block: Any, operands: list[Any]) -> str:
        number = next(n for n, other in enumerate(self.blocks) if other == block)
        values = ", ".join(self._value(v) for v in operands)
        types = ", ".join(self._type(v.type) for v in operands)
        return f"^bb{number}({values} : {types})" if operands else f"^bb{number}"

    def _return(self, _op: Any) -> None:
        self.lines.append("  return")

    def _drop(self, _op: Any) -> None:
        """Costs and deallocations are nothing in a circuit, and constants are made where they are used."""

    def _alloc(self, op: Any) -> None:
        type_ = ir.MemRefType(op.results[0].type)
        self.local_number[op.results[0].get_name()] = len(self.locals)
        self.locals.append((int(self._type(type_.element_type)[1:]), math.prod(type_.shape)))

    # accesses -----------------------------------------------------------------------------------------------------

    def _get(self, op: Any) -> None:
        site = self._stream_site("get", op.operands[0], op.results[0].type)
        self._access_line(op.results[0], site)

    def _put(self, op: Any) -> None:
        site = self._stream_site("put", op.operands[0], op.operands[1].type)
        self._store_line(op.operands[1], site, self._zero())

    def _stream_site(self, kind: Kind, stream: Any, type_: Any) -> int:
        if not isinstance(stream, ir.BlockArgument) or stream.owner != self.entry:
            raise RtlError(f"{self.task_class.kernel} computes which stream it uses", hint="index streams by the pid")
        target = self.streams[stream.arg_number]
        if (self.block.streams and not self.overlap) or target in self.block.streams:
            self._cut()
        self.block.streams.add(target)
        self.sites.append(Site(kind, "stream", target, int(self._type(type_)[1:]), 1))
        return len(self.sites) - 1

    def _load(self, op: Any) -> None:
        array, key = op.operands[0], self._array(op.operands[0])
        if key in self.block.stored:
            self._cut()
        address = self._address(array, list(op.operands)[1:])
        result = self._value(op.results[0])
        self.block.loads.setdefault(key, []).append(result)
        self._access_line(op.results[0], self._memory_site("load", array, key), address)

    def _store(self, op: Any) -> None:
        value, array = op.operands[0], op.operands[1]
        key = self._array(array)
        known = self.sources.get(self._value(value), set())
        if key in self.block.stored or any(load not in known for load in self.block.loads.get(key, ())):
            self._cut()
        address = self._address(array, list(op.operands)[2:])
        self.block.stored.add(key)
        self._store_line(value, self._memory_site("store", array, key), address)

    def _array(self, array: Any) -> str:
        """What array an access means, whatever port it uses: tasks may have the same tensor twice."""
        if isinstance(array, ir.BlockArgument) and array.owner == self.entry:
            ports = sorted(self.task_class.tensor_ports, key=lambda port: port.arg)
            return f"tensor {ports[self.tensors[array.arg_number]].tensor.name}"
        if array.get_name() not in self.local_number:
            raise RtlError(f"{self.task_class.kernel}: a view of an array that cannot be resolved", hint="use elements")
        return f"local {self.local_number[array.get_name()]}"

    def _memory_site(self, kind: Kind, array: Any, key: str) -> int:
        type_ = ir.MemRefType(array.type)
        width, words = int(self._type(type_.element_type)[1:]), max(1, math.prod(type_.shape))
        if key.startswith("tensor"):
            self.sites.append(Site(kind, "tensor", self.tensors[array.arg_number], width, words))
        else:
            self.sites.append(Site(kind, "local", self.local_number[array.get_name()], width, words))
        return len(self.sites) - 1

    def _address(self, array: Any, indices: list[Any]) -> str:
        """Row-major position of an element, as an index of the array's port."""
        if not indices:
            return self._zero()
        shape, total, type_ = ir.MemRefType(array.type).shape, "", f"i{self.width}"
        for axis, index in enumerate(indices):
            stride, term = math.prod(shape[axis + 1 :]), self._value(index)
            if stride != 1:
                term = self._new(f"arith.muli {term}, {self._constant(stride, type_)} : {type_}")
            total = self._new(f"arith.addi {total}, {term} : {type_}") if total else term
        return self._new(f"arith.index_cast {total} : {type_} to index")

    def _zero(self) -> str:
        return self._new("arith.constant 0 : index")

    def _access_line(self, result: Any, site: int, address: str | None = None) -> None:
        address = address or self._zero()
        name, port = self._value(result), self.sites[site]
        self.sources[name] = {name}
        self.lines.append(f"  {name} = memref.load %m{site}[{address}] : memref<{port.words}xi{port.width}>")

    def _store_line(self, value: Any, site: int, address: str) -> None:
        port = self.sites[site]
        text = f"memref.store {self._value(value)}, %m{site}[{address}] : memref<{port.words}xi{port.width}>"
        self.lines.append(f"  {text}")


_BINARY = frozenset(
    f"arith.{name}"
    for name in (
        "addi",
        "subi",
        "muli",
        "divsi",
        "divui",
        "remsi",
        "remui",
        "andi",
        "ori",
        "xori",
        "shli",
        "shrsi",
        "shrui",
    )
)
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CONSTANTS: dict[str, Callable[[Any], int]] = {
    "arith.constant": lambda op: int(ir.IntegerAttr(op.attributes["value"]).value),
    "ub.poison": lambda _: 0,
}
"""Operations whose value is known; a variable that is read before it is written may have any."""
_HANDLERS: dict[str, Callable[[_Emitter, Any], None]] = {
    "arith.constant": _Emitter._drop,
    "ub.poison": _Emitter._drop,
    "arith.cmpi": _Emitter._compare,
    "arith.select": _Emitter._select,
    **{f"arith.{name}": _Emitter._extreme for name in ("minsi", "maxsi", "minui", "maxui")},
    **{f"arith.{name}": _Emitter._resize for name in ("extsi", "extui", "trunci", "index_cast", "index_castui")},
    "cf.br": _Emitter._branch,
    "cf.cond_br": _Emitter._conditional,
    "func.return": _Emitter._return,
    "df.cost": _Emitter._drop,
    "memref.dealloc": _Emitter._drop,
    "memref.alloc": _Emitter._alloc,
    "memref.alloca": _Emitter._alloc,
    "df.get": _Emitter._get,
    "df.put": _Emitter._put,
    "memref.load": _Emitter._load,
    "memref.store": _Emitter._store,
}
