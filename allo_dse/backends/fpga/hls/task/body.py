"""A task function under construction: its text, and the C++ form of MLIR values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.nest import View

from ...linear import Atom, IndexSum, atomic
from ..cpp.expressions import INDEX, Element, Names, Node, const, element_of, leaf, render, too_long
from ..cpp.operations import scalar
from ..cpp.streams import StreamArg
from .pragmas import LoopPragmas, LoopSource

# Arrays of a task function, and parts of them, as C++ lvalues.


Name = Callable[[Atom], str]


class Array(Frozen, eq=False):
    """A variable (no dimensions kept), an array, or memory behind a pointer.

    Attributes:
        extents: per dimension of the memref.
        origin: per dimension the index in the memref of the first element that is kept.
        kept: the dimensions that the C++ array has.
        pointer: for memory behind a pointer, where the memref's first element lies and its strides, in elements.
        element: as C++ declares it.
    """

    name: str
    element: Element
    extents: tuple[int, ...]
    origin: tuple[IndexSum, ...] = ()
    kept: tuple[int, ...] | None = None
    pointer: tuple[IndexSum, tuple[int, ...]] | None = None

    def at(self, indices: Sequence[IndexSum], name: Name) -> str:
        """One element."""
        if self.pointer is not None:
            place, strides = self.pointer
            for index, stride in zip(indices, strides, strict=True):
                place = place + index * stride
            return f"{self.name}[{place.text(name)}]"
        dims = range(len(self.extents)) if self.kept is None else self.kept
        own = [indices[d] - self.origin[d] if self.origin else indices[d] for d in dims]
        return self.name + "".join(f"[{index.text(name)}]" for index in own)


def whole(array: Array) -> View:
    return View.whole(array, len(array.extents), IndexSum())


INDENT = "  "
MOVED = "\0"
"""Stands for a line that has been moved."""


@dataclass
class Body:
    """Translation of one body.

    Attributes:
        handlers: what writes an operation, by its name.
        values: what MLIR values are in C++.
        pending: expressions that read variables and have not been written yet; they are written before what they read
            changes.
        unset: scalar variables that have been declared but not used yet, with the line of the declaration.
        addresses: values that are addresses of vendor kernels or of their operands.
        banks: arrays that are banks of ping-pong buffers, with the streams; scopes in which a task has them open and
            close around operations. bank_pragmas: about those arrays, with "{}" for the variable, by stream.
        results: what sends the results of tensor arguments at the end.
        sources: what loops are in the source, by label.
    """

    names: Names
    pragmas: LoopPragmas
    handlers: Mapping[str, Callable[[Body, ir.Operation], None]]
    forms: dict[ir.Value, IndexSum] = field(default_factory=dict)
    values: dict[ir.Value, Node] = field(default_factory=dict)
    atoms: dict[Atom, str] = field(default_factory=dict)
    views: dict[ir.Value, View] = field(default_factory=dict)
    streams: dict[ir.Value, StreamArg] = field(default_factory=dict)
    pending: dict[ir.Value, Node] = field(default_factory=dict)
    unset: dict[Array, int] = field(default_factory=dict)
    labels: Names = field(default_factory=Names)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    externals: dict[ir.Value, str] = field(default_factory=dict)
    addresses: set[ir.Value] = field(default_factory=set)
    banks: dict[ir.Value, StreamArg] = field(default_factory=dict)
    opens: dict[ir.Operation, list[tuple[ir.Operation, bool]]] = field(default_factory=dict)
    closes: dict[ir.Operation, int] = field(default_factory=dict)
    bank_pragmas: dict[str, list[str]] = field(default_factory=dict)
    results: dict[ir.Value, str] = field(default_factory=dict)
    sources: dict[str, LoopSource] = field(default_factory=dict)

    # -- text --------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text if text else "")

    def initialise(self, variable: Array, text: str) -> bool:
        """Declare a scalar variable where it is first set, if that is in the function's outermost block."""
        place = self.unset.pop(variable, None)
        if place is None or self.depth > 1 or self.lines[place] is MOVED:
            return False
        if any(re.search(rf"\b{variable.name}\b", line) for line in self.lines[place + 1 :]):
            return False
        self.lines[place] = MOVED
        self.line(f"{variable.element} {variable.name} = {text};")
        return True

    def pragma(self, text: str) -> None:
        self.lines.append(f"#pragma HLS {text}")

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        self.line(opening)
        self.depth += 1
        with self.names.scope():
            yield
        self.depth -= 1
        self.line(closing)

    def label(self, source: LoopSource) -> str:
        """Return a new label for a loop; reports use it."""
        label = self.labels.new(source.label)
        self.sources[label] = source
        return label

    def atom_text(self, value: Atom) -> str:
        """The text of an atom of a linear form: an MLIR value, or a name already."""
        return value if isinstance(value, str) else self.atoms[value]

    def index(self, value: ir.Value | int) -> IndexSum:
        return IndexSum(value) if isinstance(value, int) else self.forms[value]

    def place(self, view: View, indices: Sequence[IndexSum]) -> str:
        """Return an element of a view."""
        return str(view.array.at(view.at(indices), self.atom_text))

    def index_text(self, value: ir.Value) -> str:
        return self.forms[value].text(self.atom_text)

    # -- values ------------------------------------------------------------------------------------------------------

    def node(self, value: ir.Value) -> Node:
        """Return the expression of a value; a pending value is no longer pending after this."""
        if isinstance(value.type, ir.IndexType):
            form = self.forms[value]
            if form.is_const:
                return const(form.const, INDEX)
            return leaf(atomic(form.text(self.atom_text)), INDEX)
        self.pending.pop(value, None)
        return self.values[value]

    def define(self, value: ir.Value, node: Node, hint: str = "v") -> None:
        """Give a value its expression: in place if it is used once, else in a variable."""
        uses = list(value.uses)
        if not uses:
            return
        if isinstance(value.type, ir.IndexType):
            in_place = len(uses) == 1 and not node.reads and not too_long(node)
            self.atoms[value] = atomic(render(node)) if in_place else self.variable(node, hint)
            return
        block = value.owner.operation.block
        movable = not node.reads or (len(uses) == 1 and uses[0].owner.operation.block == block)
        if node.is_simple or (len(uses) == 1 and movable and not too_long(node)):
            self.values[value] = node
            if node.reads:
                self.pending[value] = node
        else:
            self.values[value] = leaf(self.variable(node, hint), node.type)

    def variable(self, node: Node, hint: str) -> str:
        name = self.names.new(hint)
        self.line(f"const {node.type} {name} = {render(node)};")
        return name

    def flush(self, changed: frozenset[Array]) -> None:
        """Write pending expressions that read arrays about to change."""
        for value, node in list(self.pending.items()):
            if node.reads & changed:
                del self.pending[value]
                self.values[value] = leaf(self.variable(node, "v"), node.type)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def statements(self, block: ir.Block) -> None:
        """All operations of a block except its terminator; returns with nothing pending but what that uses."""
        for op in block.operations:
            if op.operation.name not in ("scf.yield", "scf.condition", "func.return"):
                for bank, closes in self.opens.get(op.operation, ()):
                    if closes:
                        self.line("{")
                        self.depth += 1
                    self.handlers["lock"](self, bank)
                self.statement(op.operation)
                for _ in range(self.closes.get(op.operation, 0)):
                    self.depth -= 1
                    self.line("}")

    def statement(self, op: ir.Operation) -> None:
        handler = self.handlers.get(op.name)
        if handler is not None:
            handler(self, op)
            return
        if not op.name.startswith(("arith.", "math.")):
            raise AlloDseError(f"HLS C++ has no translation for {op.name}", hint="please report the program")
        result = op.results[0]
        if any(operand in self.addresses for operand in op.operands):
            self.addresses.add(result)
            return  # part of the call of a vendor kernel
        if isinstance(result.type, ir.IndexType) and self.forms[result].terms.get(result) != 1:
            return  # part of a linear form
        hint = "at" if isinstance(result.type, ir.IndexType) else "v"
        self.define(result, scalar(op, [self.node(operand) for operand in op.operands]), hint)

    # -- variables that change ---------------------------------------------------------------------------------------

    def declare(self, value: ir.Value, hint: str, initial: ir.Value | None = None) -> str:
        """A variable for a value that is assigned on several ways."""
        name = self.names.new(hint)
        type_ = element_of(value.type)
        start = "" if initial is None else f" = {render(self.node(initial))}"
        self.line(f"{type_} {name}{start};")
        self.bind(value, name)
        return name

    def bind(self, value: ir.Value, name: str) -> None:
        """Bind a value to the present content of a variable."""
        if isinstance(value.type, ir.IndexType):
            self.atoms[value] = name
        else:
            self.values[value] = leaf(name, element_of(value.type))

    def assign(self, names: Sequence[str], values: Iterable[ir.Value]) -> None:
        """Assign all at once: no value may see another variable's new content."""
        texts = [
            self.index_text(value) if isinstance(value.type, ir.IndexType) else render(self.node(value))
            for value in values
        ]
        if len(names) > 1:
            for position, (value, text) in enumerate(zip(values, texts, strict=True)):
                texts[position] = self.names.new("next")
                self.line(f"const {element_of(value.type)} {texts[position]} = {text};")
        for name, text in zip(names, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")
