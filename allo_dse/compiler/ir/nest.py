"""Task bodies as plain trees of loops and operations, prepared for the cost model.

    nest = read_nest(task_class.body.mlir)      # Nest(body=(Loop(...), ...), arrays={...})

Index arithmetic disappears: an access knows, per array dimension, its index as a form of loop variables and pid, or
that it is not one. Views of arrays are resolved to the arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from allo_dse.common.mlir.bindings import Operation, Value, ir
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Frozen, Ints

from .affine import SHIFTS, UNKNOWN, Around, Linear, LinearForms, Path, Test, Under
from .constants import Computed, Constants

_FREE = frozenset(
    {"arith.constant", "memref.cast", "memref.dealloc", "func.return", "scf.yield", "affine.yield", "scf.condition"}
)
CONTROL = ("scf.for", "affine.for", "scf.if", "scf.while")
"""Operations that decide what happens next. Each has a site: its position among them; a `while` has two, one for its
rounds and one for whether each of them goes on."""
WIRING = "wiring"
"""An operation that costs nothing in hardware: a shift by a constant, or what amounts to one."""
BY_POWER = {
    **dict.fromkeys(("arith.muli", "arith.divui", "arith.floordivsi", "arith.remui", *SHIFTS), WIRING),
    "arith.divsi": "arith.subi",  # which rounds towards zero
}
_DYNAMIC = -(1 << 63)
_LARGEST_TABLE = 1 << 12
"""Most entries of a table whose elements have forms."""
BANK = "df.bank"
LOOP = "df.loop"
"""The attribute that numbers the loops of the source."""
_STREAM_KINDS = {"df.get": "get", "df.get_block": "get", "df.put": "put", "df.put_block": "put"}


class Array(Frozen):
    """An array of a task: an argument (a tile of a tensor), or its own.

    Attributes:
        argument: position among the kernel's arguments, or None for a local array.
        values: of a table of integer constants, in row-major order; empty for any other array.
    """

    name: str
    shape: Ints
    bits: int
    argument: int | None = None
    values: Ints = ()


class Access(Frozen):
    """A load or a store of an element of an array.

    Attributes:
        spread: whether it belongs to one copy of an unrolled loop; each copy has its own index.
    """

    array: str
    write: bool
    index: tuple[Linear | None, ...]
    spread: bool = False


class Op(Frozen):
    """An operation that takes time or space.

    Attributes:
        inputs, outputs: value numbers. A store has its value first, then indices that data decide; a load has these.
        element: "f32", "i16", ... of its operands; bits: width of its result.
        constant, factor: its result, and a factor of a product of integers or their divisor, where constants, loop
            variables and process ids alone decide them.
        stream: position of the stream argument, for stream operations; op: their number in the source.
        block: shape of the token, for operations on blocks. bank: the stream that says which banks are in use, if the
            block is one of a ping-pong buffer.
    """

    name: str
    inputs: Ints
    outputs: Ints
    element: str
    bits: int
    operand_bits: Ints = ()
    access: Access | None = None
    stream: int | None = None
    op: int = -1
    block: Ints = ()
    bank: int | None = None
    constant: Linear | Computed | None = None
    factor: Linear | Computed | None = None

    @property
    def direction(self) -> str | None:
        """ "get" or "put" for stream operations."""
        return _STREAM_KINDS.get(self.name)


class Loop(Frozen):
    """A counted loop.

    Attributes:
        variable: value number of its variable, as linear forms use it.
        source: its number in `TaskClass.loops`; None for a loop of a tile operation.
        lower, upper, step: the variable's values; None, or 0, where they depend on data.
        site: its position among the body's control operations.
    """

    variable: int
    source: int | None
    lower: Linear | None
    upper: Linear | None
    step: int
    body: tuple[Node, ...]
    site: int = -1

    @property
    def trips(self) -> Linear | None:
        """Return the number of iterations, if it is a constant or a linear form."""
        if self.lower is None or self.upper is None or not self.step:
            return None
        length = self.upper + self.lower.scaled(-1)
        if length.is_constant:
            return Linear((), max(0, -(-length.constant // self.step)))
        return length if self.step == 1 else None


class Branch(Frozen):
    """A condition with its two sides.

    Attributes:
        test: the condition where linear forms decide it, else None.
        outputs, results: values it yields, and per side those they come from.
        site: its position among the body's control operations.
    """

    condition: int
    test: Test | None
    sides: tuple[tuple[Node, ...], tuple[Node, ...]]
    outputs: Ints
    results: tuple[Ints, Ints]
    bits: int
    site: int = -1


Node: TypeAlias = Op | Loop | Branch


class View(Frozen, eq=False):
    """A part of an array.

    Attributes:
        array: what stands for it. index: of its first element, in linear forms of any kind.
        steps: between its elements. dims: those of the array that its own dimensions are.
    """

    array: Any
    index: tuple[Any, ...]
    steps: Ints
    dims: Ints

    @staticmethod
    def whole(array: Any, rank: int, zero: Any) -> View:
        return View(array, (zero,) * rank, (1,) * rank, tuple(range(rank)))

    def at(self, offsets: Sequence[Any]) -> tuple[Any, ...]:
        """Return the index in the array of an element; None where it is not known."""
        index = list(self.index)
        for dim, offset in zip(self.dims, offsets, strict=True):
            base = index[dim]
            index[dim] = None if base is None or offset is None else base + offset.scaled(self.steps[dim])
        return tuple(index)

    def part(self, op: Operation, form: Callable[[Value | int], Any]) -> View:
        """Return the part that a `memref.subview` selects.

        Args:
            form: returns that of an offset.
        """
        offsets, sizes, paces = (
            list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
        )
        operands = iter(list(op.operands)[1:])
        dropped = len(sizes) - ir.MemRefType(op.results[0].type).rank
        starts, steps, dims = [], list(self.steps), list[int]()
        for dim, offset, size, pace in zip(self.dims, offsets, sizes, paces, strict=True):
            starts.append(form(next(operands) if offset == _DYNAMIC else offset))
            steps[dim] *= pace
            drop = dropped > 0 and size == 1  # any extent of one may be dropped: its index is 0
            dropped -= drop
            dims += [] if drop else [dim]
        return View(self.array, self.at(starts), tuple(steps), tuple(dims))


class Unsupported(Frozen):
    """The reason that a body has no static times.

    Attributes:
        loop, op: the cause, by its number in `TaskClass.loops` or `TaskClass.stream_ops`.
    """

    reason: str
    loop: int | None = None
    op: int | None = None


class Nest(Frozen):
    """A task body.

    Attributes:
        arrays: by name. pids: value numbers of the process id's components.
        escaped: arrays whose address an operation takes.
        priced: by position in `TaskClass.work`, what the operation is in: once, or as often as it stands in the body.
        unsupported: why its times are not static, and the number of the loop in `TaskClass.loops`, or of the operation
            in `TaskClass.stream_ops`, that is to blame; None when they are.
    """

    body: tuple[Node, ...]
    arrays: Mapping[str, Array]
    pids: Ints
    unsupported: Unsupported | None
    priced: Mapping[int, tuple[Path, ...]]
    escaped: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def read_nest(mlir: str) -> Nest:
    """The tree of a task body, from its MLIR text."""
    with text_context():
        module = ir.Module.parse(mlir)
        function = next(op for op in module.body.operations if op.operation.name == "func.func").operation
        header = mlir[: mlir.index("{\n")]
        names = re.findall(r"%(\w+): memref", header)
        return _Reader(module, function, names, len(re.findall(r"%pid\d+: index", header))).nest()


class _Reader:
    """Reads one function."""

    def __init__(self, module: ir.Module, function: Operation, names: list[str], pids: int) -> None:
        self._module = module
        self._function = function
        self._pids = pids
        self._names = names
        self._numbers: dict[Value | Operation, int] = {}
        self._forms = LinearForms()
        self._constants = Constants(self._forms)
        self._arrays: dict[str, Array] = {}
        self._views: dict[Value, View] = {}
        self._streams: dict[Value, int] = {}
        self._unsupported: Unsupported | None = None
        self._sites = 0
        self._around: Path = ()
        self._priced: dict[int, tuple[Path, ...]] = {}
        self._escaped: set[str] = set()

    def nest(self) -> Nest:
        block = self._function.regions[0].blocks[0]
        arguments = list(block.arguments)
        indices = [a for a in arguments if str(a.type) == "index"]
        pids = [self._variable(a) for a in arguments[: self._pids]]
        self._forms.pids = frozenset(pids)
        self._forms.ranges.update((pid, (0, UNKNOWN[1])) for pid in pids)
        arrays = [a for a in arguments if str(a.type) != "index"]
        for number, argument in enumerate(arrays):
            self._declare(argument, self._names[number], number)
        for number, argument in enumerate(indices[len(pids) :]):
            self._streams[argument] = number
        body = self._block(block)
        return Nest(body, self._arrays, tuple(pids), self._unsupported, self._priced, frozenset(self._escaped))

    def _refuse(self, reason: str, op: Operation) -> None:
        numbers = (_number_if(op, name) for name in (LOOP, "op"))
        self._unsupported = self._unsupported or Unsupported(reason, *numbers)

    def _number(self, value: Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _variable(self, value: Value) -> int:
        number = self._number(value)
        self._forms.set(value, Linear.variable(number))
        return number

    def _declare(self, value: Value, name: str, argument: int | None = None, values: Ints = ()) -> None:
        type_ = ir.MemRefType(value.type)
        shape = tuple(type_.shape)
        self._arrays[name] = Array(name, shape, bits_of(type_.element_type), argument, values)
        self._views[value] = View.whole(name, len(shape), Linear(()))

    def _table(self, op: Operation) -> Ints:
        """Return the integers of a constant table that an operation refers to; none of other tables and arrays."""
        if op.name != "memref.get_global" or element_of(ir.MemRefType(op.results[0].type).element_type)[0] not in "iu":
            return ()
        name = ir.FlatSymbolRefAttr(op.attributes["name"]).value
        given = next(g for g in self._module.body.operations if ir.StringAttr(g.attributes["sym_name"]).value == name)
        dense = ir.DenseElementsAttr(given.attributes["initial_value"])
        return tuple(np.array(dense, np.int64).ravel().tolist())

    def _inside(self, around: Around | Under, block: ir.Block) -> tuple[Node, ...]:
        outside, self._around = self._around, (*self._around, around)
        nodes = self._block(block)
        self._around = outside
        return nodes

    def _block(self, block: ir.Block) -> tuple[Node, ...]:
        nodes = (self._node(op.operation) for op in block.operations)
        return tuple(node for node in nodes if node is not None)

    def _node(self, op: Operation) -> Node | None:
        name = op.name
        if name in ("memref.alloc", "memref.alloca", "memref.get_global"):
            given = str(ir.StringAttr(op.attributes["df.name"]).value) if "df.name" in op.attributes else ""
            unique = given if given and given not in self._arrays else f"{given or 'buffer'}.{len(self._arrays)}"
            self._declare(op.results[0], unique, values=self._table(op))
        elif name in ("memref.subview", "memref.cast"):
            self._view(op)
        elif name in ("scf.for", "affine.for"):
            return self._loop(op)
        elif name == "scf.if":
            return self._branch(op)
        elif name in _STREAM_KINDS:
            return self._stream(op)
        elif name in ("memref.load", "memref.store", "affine.load", "affine.store"):
            return self._access(op)
        elif name == "df.cost":
            site = number_in(op, "site")
            self._priced[site] = (*self._priced.get(site, ()), self._around)
        elif name.startswith("df."):
            self._refuse("what it finds depends on when it is asked", op)
        elif name == "scf.while":
            return self._while(op)
        elif name not in _FREE and not self._forms.compute(op):
            return self._plain(op)
        return None

    def _view(self, op: Operation) -> None:
        view = self._views[op.operands[0]]
        self._views[op.results[0]] = view.part(op, self._form) if op.name == "memref.subview" else view

    def _form(self, value: Value | int) -> Linear | None:
        return Linear((), value) if isinstance(value, int) else self._forms.get(value)

    def _access(self, op: Operation) -> Op:
        write = op.name.endswith("store")
        operands = list(op.operands)
        view, indices = (operands[1], operands[2:]) if write else (operands[0], operands[1:])
        forms = [self._forms.get(value) for value in indices]
        name, index = self._views[view].array, self._views[view].at(forms)
        array = self._arrays[name]
        if not index:
            self._constants.access(op)
        elif 0 < len(array.values) <= _LARGEST_TABLE:
            self._forms.entry(op.results[0], array.values, array.shape, index)
        computed = (value for value, form in zip(indices, forms, strict=True) if form is None)
        inputs = tuple(self._number(value) for value in (*operands[:write], *computed))
        outputs = () if write else (self._number(op.results[0]),)
        return Op("store" if write else "load", inputs, outputs, "", array.bits, access=Access(name, write, index))

    def _stream(self, op: Operation) -> Op:
        operands = list(op.operands)
        stream = self._streams.get(operands[0])
        if stream is None:
            self._refuse("which stream it uses is computed in the body", op)
            stream = 0
        number = number_in(op, "op")
        if op.name.endswith("_block"):
            block = ir.MemRefType(operands[1].type)
            view, bits = self._views[operands[1]], bits_of(block.element_type)
            extents = dict(zip(view.dims, block.shape, strict=True))
            whole = tuple(extents.get(dim, 1) for dim in range(len(view.index)))
            index = tuple(form if step == 1 else None for form, step in zip(view.index, view.steps, strict=True))
            access, bank = Access(view.array, op.name == "df.get_block", index), _number_if(op, BANK)
            return Op(op.name, (), (), "", bits, access=access, stream=stream, op=number, block=whole, bank=bank)
        inputs = tuple(self._number(v) for v in operands[1:])
        outputs = tuple(self._number(v) for v in op.results)
        type_ = (operands[1] if inputs else op.results[0]).type
        return Op(op.name, inputs, outputs, "", bits_of(type_), stream=stream, op=number)

    def _site(self) -> int:
        self._sites += 1
        return self._sites - 1

    def _loop(self, op: Operation) -> Loop:
        block, site = op.regions[0].blocks[0], self._site()
        variable = self._variable(block.arguments[0])
        lower, upper, step = self._forms.bounds(op)
        self._constants.forget(op)
        body = self._inside(Around(variable, lower, upper, step), block)
        self._constants.forget(op)
        return Loop(variable, _number_if(op, LOOP), lower, upper, step, body, site)

    def _while(self, op: Operation) -> Loop:
        """A loop whose last iteration ends at the condition: `while c: body` is `loop: if c: body`."""
        site, goes_on = self._site(), self._site()
        self._constants.forget(op)
        test, body = (self._inside(Under(None, True), region.blocks[0]) for region in op.regions)
        self._constants.forget(op)
        condition = list(op.regions[0].blocks[0].operations)[-1].operands[0]
        branch = Branch(self._number(condition), None, (body, ()), (), ((), ()), 0, goes_on)
        variable = len(self._numbers)
        self._numbers[op] = variable  # of no value: nothing is an index of it
        return Loop(variable, _number_if(op, LOOP), None, None, 0, (*test, branch), site)

    def _branch(self, op: Operation) -> Branch | None:
        site = self._site()
        sides, results, yielded, after = [], [], [], []
        before = self._constants.variables
        condition = op.operands[0]
        test = self._forms.test(condition)
        for region, side in zip(op.regions, (True, False), strict=True):
            blocks = list(region.blocks)
            self._constants.variables = dict(before)
            sides.append(self._inside(Under(test, side), blocks[0]) if blocks else ())
            last = list(blocks[0].operations)[-1] if blocks else None
            yielded.append(list(last.operands) if last is not None else [])
            results.append(tuple(self._number(v) for v in yielded[-1]))
            after.append(self._constants.variables)
        self._constants.join(op, *after)
        if not any(sides) and self._forms.choose(op, *yielded):
            return None
        outputs = tuple(self._number(v) for v in op.results)
        bits = max((bits_of(v.type) for v in op.results), default=0)
        number, taken, given = self._number(condition), (sides[0], sides[1]), (results[0], results[1])
        return Branch(number, test, taken, outputs, given, bits, site)

    def _plain(self, op: Operation) -> Op:
        operands, results = list(op.operands), list(op.results)
        self._escaped.update(self._views[value].array for value in operands if value in self._views)
        factors = [] if op.name not in BY_POWER else operands if op.name == "arith.muli" else operands[1:]
        element = element_of(operands[0].type if op.name != "arith.select" else operands[1].type) if operands else "i1"
        return Op(
            op.name,
            tuple(self._number(v) for v in operands),
            tuple(self._number(v) for v in results),
            element,
            max((bits_of(r.type) for r in results), default=0),
            tuple(self._width(v) for v in operands),
            constant=self._constants.of(results[0]) if len(results) == 1 else None,
            factor=next((known for value in factors if (known := self._constants.of(value)) is not None), None),
        )

    def _width(self, value: Value) -> int:
        """Bits that an operand really has: those before it was extended."""
        owner = None if isinstance(value, ir.BlockArgument) else value.owner
        if owner is not None and owner.name in ("arith.extsi", "arith.extui"):
            return self._width(owner.operands[0])
        if owner is not None and owner.name == "arith.constant" and element_of(value.type)[0] == "i":
            constant = int(ir.IntegerAttr(owner.attributes["value"]).value)
            return min(bits_of(value.type), constant.bit_length() + (constant < 0) or 1)
        return bits_of(value.type)


def _number_if(op: Operation, name: str) -> int | None:
    return number_in(op, name) if name in op.attributes else None


def element_of(type_: ir.Type) -> str:
    """Return the name of a type in device files: f32, i16, ..."""
    text = str(type_)
    return "i32" if text == "index" else text


def bits_of(type_: ir.Type) -> int:
    """Width of a value; indices count as 32 bits."""
    text = element_of(type_)
    digits = "".join(c for c in text if c.isdigit())
    return int(digits) if digits else 32


def with_loops(nodes: Iterable[Node], outer: tuple[Loop, ...] = ()) -> Iterator[tuple[Node, tuple[Loop, ...]]]:
    """Yield all nodes of some trees in the order of the text, each with the loops around it."""
    for node in nodes:
        yield node, outer
        for block in blocks_of(node):
            yield from with_loops(block, (*outer, node) if isinstance(node, Loop) else outer)


def blocks_of(node: Node) -> tuple[tuple[Node, ...], ...]:
    """The blocks inside a node."""
    return (node.body,) if isinstance(node, Loop) else node.sides if isinstance(node, Branch) else ()


def walk(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield all nodes of some trees, each before those inside it; whatever has a body counts as a loop."""
    for node in nodes:
        yield node
        if not isinstance(node, Op):
            yield from walk(chain(*node.sides) if isinstance(node, Branch) else node.body)


def outermost(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield the loops of a block, those under conditions included, without those inside them."""
    for node in nodes:
        if isinstance(node, Branch):
            yield from outermost(chain(*node.sides))
        elif not isinstance(node, Op):
            yield node


def ops_of(nodes: Iterable[object]) -> Iterator[Op]:
    """Yield the operations of some trees, in order."""
    return (node for node in walk(nodes) if isinstance(node, Op))


def loops_of(nodes: Iterable[Node]) -> Iterator[Loop]:
    """All loops of a tree, each before those inside it."""
    return (node for node in walk(nodes) if isinstance(node, Loop))


def accesses_of(nodes: Iterable[Node], array: str) -> Iterator[tuple[Access, tuple[Loop, ...]]]:
    """The accesses to an array, with the loops around them."""
    for node, outer in with_loops(nodes):
        if isinstance(node, Op) and node.access is not None and node.access.array == array:
            yield node.access, outer


def number_in(op: Operation, name: str) -> int:
    """The value of an integer attribute."""
    return int(ir.IntegerAttr(op.attributes[name]).value)
