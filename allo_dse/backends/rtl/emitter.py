"""Writing a flat function as CIRCT takes it: narrow indices, row-major addresses, one array argument per access."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import TaskClass

from .tools import Kind, LocalArray, RtlError, RtlKernel, Site


@dataclass
class _Block:
    """Accesses since the block began, and the values that have been made there.

    Constants and addresses are made in every block that needs them: what is passed from block to block is a channel.
    """

    made: dict[str, str] = field(default_factory=dict)
    streams: set[int] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    loads: dict[str, list[str]] = field(default_factory=dict)


class Emitter:
    """Writes one function.

    Args:
        pids: how many process id arguments come first. width: bits of an index.
        constants: elements of the constant arrays, by symbol.
    """

    def __init__(
        self, task_class: TaskClass, pids: int, width: int, overlap: bool, constants: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.task_class, self.pids, self.width, self.overlap = task_class, pids, width, overlap
        self.sites: list[Site] = []
        self.locals: list[LocalArray] = []
        self.local_number: dict[str, int] = {}
        self.constants = constants
        self.lines: list[str] = []
        self.fresh = 0
        self.block = _Block()
        self.sources: dict[str, set[str]] = {}
        ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
        self.tensors = {pids + number: number for number in range(len(ports))}
        self.streams = {pids + len(ports) + number: number for number in range(len(task_class.body.streams))}

    def emit(self, function: ir.OpView) -> RtlKernel:
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

    def _op(self, op: ir.Operation) -> None:
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.name in _OF_ONE_TYPE:
            self._line(op, f"{op.name} {self._values(op)} : {self._type(op.results[0].type)}")
        else:
            raise RtlError(
                f"{self.task_class.kernel}: the open RTL flow has no `{op.name}`", hint="integer kernels only"
            )

    def _line(self, op: ir.Operation, text: str) -> None:
        result = self._value(op.results[0])
        self.sources[result] = set().union(*(self.sources.get(self._value(v), set()) for v in op.operands))
        self.lines.append(f"  {result} = {text}")

    def _value(self, value: ir.Value) -> str:
        name = value.get_name().lstrip("%")
        if isinstance(value, ir.BlockArgument):
            return f"%p{value.arg_number}" if value.owner == self.entry else f"%v{name}"
        constant = _CONSTANTS.get(value.owner.name)
        return f"%v{name}" if constant is None else self._constant(constant(value.owner), self._type(value.type))

    def _values(self, op: ir.Operation) -> str:
        return ", ".join(self._value(v) for v in op.operands)

    def _type(self, type_: ir.Type) -> str:
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
        """A constant; one of more than 64 bits is put together, as CIRCT ends its process at such a number."""
        width = int(type_[1:])
        value -= (value >> (width - 1) & 1) << width if value > 0 else 0
        if not -(1 << 63) <= value < 1 << 63:
            upper, lower = (self._constant(part, type_) for part in (value >> 62, value & (1 << 62) - 1))
            shifted = self._new(f"arith.shli {upper}, {self._constant(62, type_)} : {type_}")
            return self._new(f"arith.ori {shifted}, {lower} : {type_}")
        return self._new(f"arith.constant {('true' if value else 'false') if type_ == 'i1' else f'{value} : {type_}'}")

    def _cut(self) -> None:
        """End the block here, so that what follows waits for the accesses so far."""
        self.fresh += 1
        self.lines += [f"  cf.br ^cut{self.fresh}", f"^cut{self.fresh}:"]
        self.block = _Block()
        self.sources = {}

    # operations ---------------------------------------------------------------------------------------------------

    def _compare(self, op: ir.Operation) -> None:
        predicate = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
        self._line(op, f"arith.cmpi {predicate}, {self._values(op)} : {self._type(op.operands[0].type)}")

    def _divide(self, op: ir.Operation) -> None:
        """Division of magnitudes, one bit wider: CIRCT's signed and unsigned divisions are each other's.

        A quotient that is rounded away from zero is that of a dividend larger by the divisor less one.
        """
        type_, signed = self._type(op.results[0].type), op.name != "arith.divui"
        wide = f"i{int(type_[1:]) + 1}"
        values = [
            self._new(f"arith.ext{'s' if signed else 'u'}i {self._value(v)} : {type_} to {wide}") for v in op.operands
        ]
        zero = self._constant(0, wide)
        negative = [self._new(f"arith.cmpi slt, {value}, {zero} : {wide}") for value in values] if signed else []
        for place, sign in enumerate(negative):
            minus = self._new(f"arith.subi {zero}, {values[place]} : {wide}")
            values[place] = self._new(f"arith.select {sign}, {minus}, {values[place]} : {wide}")
        values[1] = self._divisor(op, values[1], wide)
        differ = self._new(f"arith.xori {negative[0]}, {negative[1]} : i1") if signed else ""
        if op.name in ("arith.floordivsi", "arith.ceildivsi"):
            less = self._new(f"arith.subi {values[1]}, {self._constant(1, wide)} : {wide}")
            added = f"{less}, {zero}" if op.name == "arith.floordivsi" else f"{zero}, {less}"
            more = self._new(f"arith.select {differ}, {added} : {wide}")
            values[0] = self._new(f"arith.addi {values[0]}, {more} : {wide}")
        quotient = self._new(f"arith.divui {values[0]}, {values[1]} : {wide}")
        if signed:
            minus = self._new(f"arith.subi {zero}, {quotient} : {wide}")
            quotient = self._new(f"arith.select {differ}, {minus}, {quotient} : {wide}")
        self._line(op, f"arith.trunci {quotient} : {wide} to {type_}")

    def _remainder(self, op: ir.Operation) -> None:
        type_ = self._type(op.results[0].type)
        divisor = self._divisor(op, self._value(op.operands[1]), type_)
        self._line(op, f"{op.name} {self._value(op.operands[0])}, {divisor} : {type_}")

    def _divisor(self, op: ir.Operation, divisor: str, type_: str) -> str:
        """Return an operation's divisor, with zero replaced by one as in compiled code.

        A quotient by zero is undefined in Verilog, and so would be everything that depends on it, including the
        handshakes of a branch.
        """
        constant = _CONSTANTS.get(op.operands[1].owner.name) if isinstance(op.operands[1], ir.OpResult) else None
        if constant is not None and constant(op.operands[1].owner):
            return divisor
        is_zero = self._new(f"arith.cmpi eq, {divisor}, {self._constant(0, type_)} : {type_}")
        return self._new(f"arith.select {is_zero}, {self._constant(1, type_)}, {divisor} : {type_}")

    def _extreme(self, op: ir.Operation) -> None:
        name, type_ = op.name.removeprefix("arith."), self._type(op.results[0].type)
        predicate = {"minsi": "slt", "maxsi": "sgt", "minui": "ult", "maxui": "ugt"}[name]
        first = self._new(f"arith.cmpi {predicate}, {self._values(op)} : {type_}")
        self._line(op, f"arith.select {first}, {self._values(op)} : {type_}")

    def _resize(self, op: ir.Operation) -> None:
        """Convert between integers, or between an integer and an index, which is an integer too."""
        source, target = self._type(op.operands[0].type), self._type(op.results[0].type)
        before, after = int(source[1:]), int(target[1:])
        value = self._value(op.operands[0])
        if before == after:
            self._line(op, f"arith.ori {value}, {self._constant(0, target)} : {target}")
            return
        wider = "arith.extui" if op.name in ("arith.extui", "arith.index_castui") else "arith.extsi"
        self._line(op, f"{wider if after > before else 'arith.trunci'} {value} : {source} to {target}")

    def _branch(self, op: ir.Operation) -> None:
        self.lines.append(f"  cf.br {self._target(op.successors[0], list(op.operands))}")

    def _conditional(self, op: ir.Operation) -> None:
        operands = list(op.operands)
        sizes = [int(n) for n in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
        yes, no = operands[1 : 1 + sizes[1]], operands[1 + sizes[1] :]
        if op.successors[0] == op.successors[1]:  # CIRCT's circuit for this would deadlock
            self._chosen(op, yes, no)
            return
        targets = f"{self._target(op.successors[0], yes)}, {self._target(op.successors[1], no)}"
        self.lines.append(f"  cf.cond_br {self._value(operands[0])}, {targets}")

    def _chosen(self, op: ir.Operation, yes: list[ir.Value], no: list[ir.Value]) -> None:
        """A branch to the same block either way: only its arguments depend on the condition."""
        condition = self._value(op.operands[0])
        pairs = (
            (self._value(left), self._value(right), self._type(left.type)) for left, right in zip(yes, no, strict=True)
        )
        values = [self._new(f"arith.select {condition}, {left}, {right} : {type_}") for left, right, type_ in pairs]
        self.lines.append(f"  cf.br {self._target(op.successors[0], yes, values)}")

    def _target(self, block: ir.Block, operands: list[ir.Value], values: Sequence[str] = ()) -> str:
        number = next(n for n, other in enumerate(self.blocks) if other == block)
        shown = ", ".join(values or map(self._value, operands))
        types = ", ".join(self._type(v.type) for v in operands)
        return f"^bb{number}({shown} : {types})" if operands else f"^bb{number}"

    def _return(self, _op: ir.Operation) -> None:
        self.lines.append("  return")

    def _drop(self, _op: ir.Operation) -> None:
        """Skip costs and deallocations, which have no hardware, and constants, which are made at their use."""

    def _alloc(self, op: ir.Operation) -> None:
        type_ = ir.MemRefType(op.results[0].type)
        self.local_number[op.results[0].get_name()] = len(self.locals)
        self.locals.append(LocalArray(int(self._type(type_.element_type)[1:]), math.prod(type_.shape)))

    def _constants(self, op: ir.Operation) -> None:
        """A constant array: one that is written before the start."""
        self._alloc(op)
        values = self.constants[ir.FlatSymbolRefAttr(op.attributes["name"]).value]
        self.locals[-1] = replace(self.locals[-1], initial=values)

    # accesses -----------------------------------------------------------------------------------------------------

    def _get(self, op: ir.Operation) -> None:
        site = self._stream_site("get", op.operands[0], op.results[0].type)
        self._access_line(op.results[0], site)

    def _put(self, op: ir.Operation) -> None:
        site = self._stream_site("put", op.operands[0], op.operands[1].type)
        self._store_line(op.operands[1], site, self._zero())

    def _stream_site(self, kind: Kind, stream: ir.Value, type_: ir.Type) -> int:
        if not isinstance(stream, ir.BlockArgument) or stream.owner != self.entry:
            raise RtlError(f"{self.task_class.kernel} computes which stream it uses", hint="index streams by the pid")
        target = self.streams[stream.arg_number]
        if (self.block.streams and not self.overlap) or target in self.block.streams:
            self._cut()
        self.block.streams.add(target)
        self.sites.append(Site(kind, "stream", target, int(self._type(type_)[1:]), 1))
        return len(self.sites) - 1

    def _load(self, op: ir.Operation) -> None:
        array, key = op.operands[0], self._array(op.operands[0])
        if key in self.block.stored:
            self._cut()
        address = self._address(array, list(op.operands)[1:])
        result = self._value(op.results[0])
        self.block.loads.setdefault(key, []).append(result)
        self._access_line(op.results[0], self._memory_site("load", array, key), address)

    def _store(self, op: ir.Operation) -> None:
        value, array = op.operands[0], op.operands[1]
        key = self._array(array)
        known = self.sources.get(self._value(value), set())
        if key in self.block.stored or any(load not in known for load in self.block.loads.get(key, ())):
            self._cut()
        address = self._address(array, list(op.operands)[2:])
        self.block.stored.add(key)
        self._store_line(value, self._memory_site("store", array, key), address)

    def _array(self, array: ir.Value) -> str:
        """Return the array that an access refers to, whatever port it uses: a task may have the same tensor twice."""
        if isinstance(array, ir.BlockArgument) and array.owner == self.entry:
            ports = sorted(self.task_class.tensor_ports, key=lambda port: port.arg)
            return f"tensor {ports[self.tensors[ir.BlockArgument(array).arg_number]].tensor.name}"
        if array.get_name() not in self.local_number:
            raise RtlError(f"{self.task_class.kernel}: a view of an array that cannot be resolved", hint="use elements")
        return f"local {self.local_number[array.get_name()]}"

    def _memory_site(self, kind: Kind, array: ir.Value, key: str) -> int:
        type_ = ir.MemRefType(array.type)
        width, words = int(self._type(type_.element_type)[1:]), max(1, math.prod(type_.shape))
        if key.startswith("tensor"):
            self.sites.append(Site(kind, "tensor", self.tensors[ir.BlockArgument(array).arg_number], width, words))
        else:
            self.sites.append(Site(kind, "local", self.local_number[array.get_name()], width, words))
        return len(self.sites) - 1

    def _address(self, array: ir.Value, indices: list[ir.Value]) -> str:
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

    def _access_line(self, result: ir.Value, site: int, address: str | None = None) -> None:
        address = address or self._zero()
        name, port = self._value(result), self.sites[site]
        self.sources[name] = {name}
        self.lines.append(f"  {name} = memref.load %m{site}[{address}] : memref<{port.words}xi{port.width}>")

    def _store_line(self, value: ir.Value, site: int, address: str) -> None:
        port = self.sites[site]
        text = f"memref.store {self._value(value)}, %m{site}[{address}] : memref<{port.words}xi{port.width}>"
        self.lines.append(f"  {text}")


_OF_ONE_TYPE = frozenset(
    f"arith.{name}" for name in ("addi", "subi", "muli", "andi", "ori", "xori", "shli", "shrsi", "shrui", "select")
)
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CONSTANTS: dict[str, Callable[[ir.Operation], int]] = {
    "arith.constant": lambda op: int(ir.IntegerAttr(op.attributes["value"]).value),
    "ub.poison": lambda _: 0,
}
"""Operations whose value is known; a variable that is read before it is written may have any."""
_HANDLERS: dict[str, Callable[[Emitter, ir.Operation], None]] = {
    "arith.constant": Emitter._drop,
    "ub.poison": Emitter._drop,
    "arith.cmpi": Emitter._compare,
    **{f"arith.{name}": Emitter._extreme for name in ("minsi", "maxsi", "minui", "maxui")},
    **{f"arith.{name}": Emitter._resize for name in ("extsi", "extui", "trunci", "index_cast", "index_castui")},
    **{f"arith.{name}": Emitter._divide for name in ("divsi", "divui", "floordivsi", "ceildivsi")},
    **{f"arith.{name}": Emitter._remainder for name in ("remsi", "remui")},
    "cf.br": Emitter._branch,
    "cf.cond_br": Emitter._conditional,
    "func.return": Emitter._return,
    "df.cost": Emitter._drop,
    "memref.dealloc": Emitter._drop,
    "memref.alloc": Emitter._alloc,
    "memref.alloca": Emitter._alloc,
    "memref.get_global": Emitter._constants,
    "df.get": Emitter._get,
    "df.put": Emitter._put,
    "memref.load": Emitter._load,
    "memref.store": Emitter._store,
}
