"""One task's body as MLIR, while it is rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from msgspec import Struct

from allo_dse.common.mlir.bindings import Operation, Value, ir, nested_ops
from allo_dse.common.records import replace

from ..ir.nest import LOOP, Loop, Nest, loops_of, number_in, read_nest
from ..program.compiled import TaskBody, TaskClass
from ..program.tensors import SourceLoop

NAME = "df.name"
PURE = ("arith.", "math.", "affine.apply", "affine.min", "affine.max")


class Body(Struct, eq=False):
    """The body of a task class.

    Attributes:
        sources: the source loops by number, the attribute `df.loop` of an operation.
        arrays: the memory that a name of a function stands for, by function, call and name.
        copies: the calls that are rounds of nests that have been unfolded, and which rounds of the loops.
    """

    task_class: TaskClass
    module: ir.Module
    sources: list[SourceLoop]
    arrays: dict[tuple[str, int, str], Value] = {}
    parameters: tuple[str, ...] = ()
    copies: dict[int, tuple[int, ...]] = {}

    @staticmethod
    def of(task_class: TaskClass, context: ir.Context) -> Body:
        """A copy of a body that can be changed; the compiled program stays as it is."""
        text = task_class.body.mlir
        with context, ir.Location.unknown():
            module = ir.Module.parse(text)
        header = next(line for line in text.splitlines() if line.startswith("func.func"))
        names = tuple(re.findall(r"%(\w+): ", header))
        body = Body(task_class, module, list(task_class.loops), parameters=names)
        own = [op for op in body.operations() if op.name in ("memref.alloc", "memref.alloca")]
        arguments = list(body.block.arguments)
        for array in task_class.arrays:
            place = own[array.allocation].results[0] if array.argument is None else arguments[array.argument]
            body.arrays[array.function, array.call, array.name] = place
        return body

    @property
    def function(self) -> Operation:
        return next(op for op in self.module.body.operations if op.operation.name == "func.func").operation

    @property
    def block(self) -> ir.Block:
        """The function's own block."""
        return self.function.regions[0].blocks[0]

    def operations(self) -> Iterator[Operation]:
        """The operations directly in the function's block."""
        return (op.operation for op in self.block.operations)

    def loops(self) -> Iterator[Operation]:
        """The loops of the source, each before what is inside it."""
        return (op for op in nested_ops(self.function, parents_first=True) if LOOP in op.attributes)

    def source(self, loop: Operation) -> SourceLoop:
        """Return the source loop of a loop."""
        return self.sources[number_of(loop)]

    def is_copy(self, loop: Loop) -> bool:
        """Return whether a loop of the tree comes from an unfolded iteration of a nest."""
        return loop.source is not None and self.sources[loop.source].call in self.copies

    def marked(self, like: SourceLoop, name: str) -> ir.IntegerAttr:
        """The attribute of a new loop that has the place of `like` in the source."""
        self.sources.append(replace(like, name=name))
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(self.sources) - 1)

    def name_of(self, array: Value) -> str:
        """Return the name of an array in the body: its parameter, or the attribute of its allocation."""
        if isinstance(array, ir.BlockArgument):
            return self.parameters[array.arg_number]
        attributes = array.owner.attributes
        return str(ir.StringAttr(attributes[NAME]).value) if NAME in attributes else ""

    def names(self) -> dict[str, str]:
        """The names of all memory, each by itself: for what gets a name beside them."""
        memory = (op.results[0] for op in self.operations() if op.name in ("memref.alloc", "memref.alloca"))
        return {name: name for name in (*self.parameters, *map(self.name_of, memory))}

    def retype(self) -> None:
        """Give the function the type that its arguments have."""
        inputs = [argument.type for argument in self.block.arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))

    def nest(self) -> Nest:
        """The body as a tree; its loops have the numbers of ours."""
        return read_nest(self.text())

    def text(self) -> str:
        """The body as MLIR text, with the names of its parameters."""

        def renamed(match: re.Match[str]) -> str:
            # MLIR prints parameters as `%arg0`; here they get their names back, and what might be called so another.
            name = match[1]
            if name.isdigit():
                return f"%{name}"
            position = re.fullmatch(r"arg(\d+)", name)
            if position is not None and int(position[1]) < len(self.parameters):
                return f"%{self.parameters[int(position[1])]}"
            return f"%${name}" if name in self.parameters else f"%{name}"

        parts = [op.operation.get_asm(use_local_scope=True) for op in self.module.body.operations]
        return re.sub(r"%(\w+)", renamed, "\n".join(parts)) + "\n"

    def finished(self) -> TaskClass:
        """The task class with the body as it is now."""
        own = self.task_class
        kept = sorted({number_of(loop) for loop in self.loops()})
        opening = {number_of(loop) for loop in self.loops() if self.enclosing(loop) is None}
        renumbered = {number: position for position, number in enumerate(kept)}
        text = re.sub(rf"{LOOP} = (\d+) : i64", lambda m: f"{LOOP} = {renumbered[int(m[1])]} : i64", self.text())
        body = TaskBody(own.body.symbol, text, own.body.streams)
        return replace(
            own, body=body, loops=tuple(replace(self.sources[n], opens=n in opening) for n in kept), arrays=()
        )

    def enclosing(self, loop: Operation) -> SourceLoop | None:
        """The nearest loop around one that belongs to the same call of the same function."""
        own = self.source(loop)
        sources = (self.source(op) for op in around(loop) if LOOP in op.attributes)
        return next((one for one in sources if (one.function, one.call) == (own.function, own.call)), None)


def number_of(loop: Operation) -> int:
    """The number of a loop of the source."""
    return number_in(loop, LOOP)


def around(op: Operation) -> Iterator[Operation]:
    """The operations around one, from the inside out; the last is the function."""
    outer: Operation | None = op
    while outer is not None and outer.name != "func.func":
        if (outer := outer.parent) is not None:
            yield outer


def nest_down_to(loop: Operation) -> list[Operation]:
    """The loops that stand in each other down to one, outermost first."""
    return [*reversed([*takewhile(lambda op: op.name == "scf.for", around(loop))]), loop]


def is_pure(op: Operation) -> bool:
    """Return whether an operation only computes values, so that it can move to wherever its operands are."""
    return op.name.startswith(PURE) and not list(op.regions)


def inner_block(loop: Operation) -> ir.Block:
    """The block that a loop repeats."""
    return loop.regions[0].blocks[0]


def statements(block: ir.Block) -> list[Operation]:
    """The operations of a block, without the one that ends it."""
    return [op.operation for op in block.operations][:-1]


def numbered(nest: Nest, number: int) -> Loop:
    """The loop of the tree that has a number."""
    return next(loop for loop in loops_of(nest.body) if loop.source == number)
