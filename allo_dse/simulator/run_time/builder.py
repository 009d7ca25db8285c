"""A small builder for run-time code: 64-bit integers, pointers, structured control flow and variables.

It writes `func`, `arith`, `cf` and `llvm` operations at an insertion point. Control flow needs no block arguments:
values that change are in a `Variable` (a stack slot), which LLVM promotes to registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from allo_dse.common.mlir.bindings import Op, arith, cf, func, ir
from allo_dse.common.records import Frozen

_PREDICATES = {"==": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5, "inside": 6}

Word: TypeAlias = ir.Value | int
"""An i64, or a Python int for a constant."""

RARELY = (1, 100)
"""Odds of a branch that is hardly ever taken."""
USUALLY = RARELY[::-1]


class Variable(Frozen):
    """A mutable local of one type."""

    address: ir.Value
    type: ir.Type


def _binary(name: str) -> Callable[[Emitter, Word, Word], ir.Value]:
    """A method that emits an operation on two integers."""
    return lambda e, a, b: e.op(name, [e.i64], e.word(a), e.word(b)).result


class Emitter:
    """Writes operations at the end of `block`; branches move it to the block that follows.

    Operands may be Python ints, which become i64 constants.
    """

    def __init__(self, block: ir.Block, entry: ir.Block | None = None) -> None:
        self.block = block
        self.entry = entry if entry is not None else block
        self.i64 = self.word_type()
        self.ptr = self.pointer_type()

    @staticmethod
    def pointer_type() -> ir.Type:
        return ir.Type.parse("!llvm.ptr")

    @staticmethod
    def word_type() -> ir.IntegerType:
        return ir.IntegerType.get_signless(64)

    @staticmethod
    def bit_type() -> ir.IntegerType:
        return ir.IntegerType.get_signless(1)

    def here(self) -> ir.InsertionPoint:
        return ir.InsertionPoint(self.block)

    def word(self, value: Word) -> ir.Value:
        """`value` itself, or the constant if it is a Python int."""
        if not isinstance(value, int):
            return value
        with self.here():
            return arith.ConstantOp(self.i64, int(value)).result

    def op(self, name: str, types: Sequence[ir.Type], *operands: ir.Value, **attributes: object) -> ir.Operation:
        """Emit an operation. The classes of LLVM's dialect take longer to import than a small body to compile."""
        parsed = {key: ir.Attribute.parse(str(value)) for key, value in attributes.items()}
        with self.here():
            return ir.Operation.create(name, types, operands, parsed)

    # -- memory ------------------------------------------------------------------------------------------------------

    def field(self, record: ir.Value, word: Word) -> ir.Value:
        """Address of a 64-bit word of a record; `word` is a constant or an i64."""
        dynamic, constant = ([], int(word)) if isinstance(word, int) else ([word], LLVM_DYNAMIC_INDEX)
        return self._place(record, dynamic, constant, self.i64)

    def _place(self, record: ir.Value, dynamic: Sequence[ir.Value], constant: int, element: ir.Type) -> ir.Value:
        indices = f"array<i32: {constant}>"
        return self.op(
            "llvm.getelementptr", [self.ptr], record, *dynamic, rawConstantIndices=indices, elem_type=element
        ).result

    def load(self, record: ir.Value, word: Word = 0, type_: ir.Type | None = None) -> ir.Value:
        return self.op("llvm.load", [type_ or self.i64], self.field(record, word)).result

    def half(self, record: ir.Value, word: int, part: int) -> ir.Value:
        """The low (0) or high (1) half of a word, unsigned, as i64."""
        address = self.field(record, word)
        narrow = ir.IntegerType.get_signless(32)
        value = self.op("llvm.load", [narrow], self._place(address, [], part, narrow)).result
        return self.op("arith.extui", [self.i64], value).result

    def load_ptr(self, record: ir.Value, word: Word = 0) -> ir.Value:
        return self.load(record, word, self.ptr)

    def store(self, value: Word, record: ir.Value, word: Word = 0) -> None:
        self.op("llvm.store", [], self.word(value), self.field(record, word))

    def increase(self, record: ir.Value, word: int, amount: Word) -> None:
        self.store(self.add(self.load(record, word), amount), record, word)

    def variable(self, initial: Word) -> Variable:
        """A new variable; its stack slot is made in the function's entry block."""
        initial = self.word(initial)
        at = ir.InsertionPoint.at_block_begin(self.entry)
        with at:
            one = arith.ConstantOp(self.i64, 1).result
            address = ir.Operation.create(
                "llvm.alloca", [self.ptr], [one], {"elem_type": ir.TypeAttr.get(initial.type)}
            ).result
        slot = Variable(address, initial.type)
        self.set(slot, initial)
        return slot

    def get(self, variable: Variable) -> ir.Value:
        return self.op("llvm.load", [variable.type], variable.address).result

    def set(self, variable: Variable, value: Word) -> None:
        self.op("llvm.store", [], self.word(value), variable.address)

    def array(self, address: ir.Value, type_: ir.Type, strides: Sequence[Word] | None = None) -> ir.Value:
        """A memref of a static shape at an address; `strides` (i64, in elements) default to row-major."""
        shape = ir.MemRefType(type_).shape
        rank = len(shape)
        if strides is None:
            strides = [math.prod(shape[i + 1 :]) for i in range(rank)]
        parts = "ptr, ptr, i64" + (f", array<{rank} x i64>" * 2 if rank else "")
        places: list[tuple[str, Word]] = [("0", address), ("1", address), ("2", 0)]
        places += [(f"3, {i}", size) for i, size in enumerate(shape)] + [(f"4, {i}", s) for i, s in enumerate(strides)]
        values = [(place, self.word(value)) for place, value in places]
        kind = ir.Type.parse(f"!llvm.struct<({parts})>")
        descriptor = self.op("llvm.mlir.undef", [kind]).result
        for place, value in values:
            descriptor = self.op("llvm.insertvalue", [kind], descriptor, value, position=f"array<i64: {place}>").result
        return self.op("builtin.unrealized_conversion_cast", [type_], descriptor).result

    # -- arithmetic --------------------------------------------------------------------------------------------------

    add = _binary("arith.addi")
    sub = _binary("arith.subi")
    mul = _binary("arith.muli")
    bits_and = _binary("arith.andi")
    shift_left = _binary("arith.shli")
    shift_right = _binary("arith.shrui")
    max = _binary("arith.maxsi")

    def bit(self, value: bool) -> ir.Value:
        with self.here():
            return arith.ConstantOp(self.bit_type(), int(value)).result

    def is_(self, a: Word, relation: str, b: Word) -> ir.Value:
        """An i1: the comparison `a relation b` of integers, signed but for `inside`: `0 <= a < b`, for b >= 0."""
        predicate = _PREDICATES[relation]
        return self.op("arith.cmpi", [self.bit_type()], self.word(a), self.word(b), predicate=predicate).result

    def address(self, pointer: ir.Value) -> ir.Value:
        """A pointer as i64."""
        return self.op("llvm.ptrtoint", [self.i64], pointer).result

    def index(self, value: Word) -> ir.Value:
        return self.op("arith.index_cast", [ir.IndexType.get()], self.word(value)).result

    def from_index(self, value: ir.Value) -> ir.Value:
        return self.op("arith.index_cast", [self.i64], value).result

    # -- control flow ------------------------------------------------------------------------------------------------

    def new_block(self) -> ir.Block:
        return self.block.create_after()

    def branch(self, target: ir.Block) -> None:
        with self.here():
            cf.BranchOp([], target)

    def branch_if(
        self, condition: ir.Value, then: ir.Block, otherwise: ir.Block, *, odds: tuple[int, int] | None = None
    ) -> None:
        """`odds`: how often each way is taken, for code layout."""
        with self.here():
            cf.CondBranchOp(condition, [], [], then, otherwise, branch_weights=odds)

    def go(self, block: ir.Block) -> None:
        """Continue writing in `block`."""
        self.block = block

    @property
    def is_open(self) -> bool:
        """True if the current block still lacks its terminator."""
        operations = self.block.operations
        return not len(operations) or operations[-1].operation.name not in _TERMINATORS

    @contextmanager
    def when(self, condition: ir.Value, *, rare: bool = False) -> Iterator[None]:
        """`if condition:`; afterwards writing continues behind it. The body may end in a return or a branch."""
        after = self.new_block()
        then = self.new_block()
        self.branch_if(condition, then, after, odds=RARELY if rare else None)
        self.go(then)
        yield
        if self.is_open:
            self.branch(after)
        self.go(after)

    @contextmanager
    def forever(self) -> Iterator[tuple[ir.Block, ir.Block]]:
        """`while True:`; yields (head, exit): branch to `head` to continue, to `exit` to leave."""
        leave = self.new_block()
        head = self.new_block()
        self.branch(head)
        self.go(head)
        yield head, leave
        if self.is_open:
            self.branch(head)
        self.go(leave)

    def leave_unless(self, condition: ir.Value, leave: ir.Block, *, rare: bool = False) -> None:
        """Go on in a new block if `condition` holds, else branch to `leave`."""
        inside = self.new_block()
        self.branch_if(condition, inside, leave, odds=RARELY if rare else None)
        self.go(inside)

    def switch(self, value: ir.Value, default: ir.Block, cases: Sequence[ir.Block]) -> None:
        """Branch to `cases[value]`, or to `default` when out of range."""
        with self.here():
            if not cases:
                cf.BranchOp([], default)
                return
            values = ir.Attribute.parse(f"dense<[{', '.join(map(str, range(len(cases))))}]> : vector<{len(cases)}xi64>")
            cf.SwitchOp(value, [], [], [0] * len(cases), default, list(cases), case_values=values)

    def call(self, name: str, arguments: Sequence[ir.Value], types: Sequence[ir.Type] = ()) -> list[ir.Value]:
        """Call a function, with results of these types."""
        with self.here():
            return list(func.CallOp(list(types), ir.FlatSymbolRefAttr.get(name), list(arguments)).results)

    def call_at(self, address: ir.Value, arguments: Sequence[ir.Value]) -> None:
        """Call a function of no result whose address is a pointer."""
        kind = ir.FunctionType.get([a.type for a in arguments], [])
        callee = self.op("builtin.unrealized_conversion_cast", [kind], address).result
        with self.here():
            func.CallIndirectOp([], callee, list(arguments))

    def return_(self, values: Sequence[ir.Value] = ()) -> None:
        with self.here():
            func.ReturnOp(list(values))


_TERMINATORS = frozenset({"cf.br", "cf.cond_br", "cf.switch", "func.return", "llvm.unreachable"})


LLVM_DYNAMIC_INDEX = -(2**31)
"""The mark in a GEP's constant indices for "taken from the operands"."""


def function(
    module: ir.Module,
    name: str,
    pointers: int,
    results: Sequence[ir.Type] = (),
    *,
    words: int = 0,
    public: bool = False,
) -> tuple[Emitter, list[ir.Value]]:
    """A new function of pointers and then words, as an emitter at its begin and its arguments.

    Args:
        public: whether it can be called from Python.
    """
    types = [Emitter.pointer_type()] * pointers + [Emitter.word_type()] * words
    with ir.InsertionPoint(module.body):
        op = func.FuncOp(name, (types, list(results)), visibility="public" if public else "private")
    if public:
        op.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    else:
        make_internal(op)
    return Emitter(op.add_entry_block()), list(op.arguments)


def make_internal(op: Op) -> None:
    """Let LLVM inline and drop a function: MLIR's own visibility does not reach it."""
    op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    op.operation.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
