"""Removal of a task body's computations that do not affect when it moves tokens.

A body's times depend on the operations that decide its control flow around stream operations, and on the numbers of
the streams. Everything else is payload. `decisions` follows values of the structured body backwards from there, through
results, loop-carried values and local arrays; `erase_payload` erases the rest. A body whose decisions depend on a token
or on a tensor's elements keeps everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from allo_dse.common.mlir.bindings import Op, arith, ir, nested_ops
from allo_dse.common.mlir.dialect import POLLS

LOOPS = ("affine.for", "scf.for")
TERMINATORS = ("affine.yield", "scf.yield", "scf.condition", "func.return", "scf.reduce")
ALLOCATIONS = ("memref.alloc", "memref.alloca", "memref.dealloc")
BRANCHES = ("scf.if", "affine.if")


class _NeedsPayload(Exception):
    """Control flow or stream numbers depend on tokens or on elements of tensors."""


def decisions(function: Op) -> set[ir.Operation] | None:
    """The operations of a structured body that decide on its times; None if they depend on its payload."""
    needed = _Needed(function.operation)
    try:
        needed.find()
    except _NeedsPayload:
        return None
    return needed.ops


def erase_payload(function: Op, needed: set[ir.Operation]) -> None:
    """Erase a body except for `needed` and its `df.take` and `df.offer`; their tokens are unused."""
    for block in function.regions[0].blocks:
        _erase(block, needed)
    for op in nested_ops(function):
        if op.name in ("memref.alloc", "memref.alloca") and all(use.owner.name == "memref.dealloc" for use in uses(op)):
            for use in uses(op):
                use.owner.operation.erase()
            op.erase()


def uses(op: Op) -> list[ir.OpOperand]:
    """The uses of all results of an operation."""
    return [use for result in op.results for use in result.uses]


class _Needed:
    """The operations that decide on times."""

    def __init__(self, function: Op) -> None:
        self._function = function
        self.ops: set[ir.Operation] = set()
        self._values: set[ir.Value] = set()
        self._arrays: set[ir.Value] = set()
        self._todo: list[ir.Value] = []

    def find(self) -> None:
        """Follow values back from control flow and stream numbers."""
        for op in nested_ops(self._function):
            if op.name in TERMINATORS and any(isinstance(o.type, ir.MemRefType) for o in op.operands):
                raise _NeedsPayload  # an array chosen by control flow
            if op.name in POLLS:
                raise _NeedsPayload  # the body's timing depends on the answer
            if op.name.startswith("df."):
                self._todo += list(op.operands)[:1]
                self._need_ancestors(op)
        while self._todo:
            self._visit(self._todo.pop())

    def _visit(self, value: ir.Value) -> None:
        if value in self._values:
            return
        self._values.add(value)
        if isinstance(value, ir.BlockArgument):
            self._visit_argument(ir.BlockArgument(value))
            return
        op = value.owner
        if op.name == "df.get":
            raise _NeedsPayload
        self._need_ancestors(op)
        self.ops.add(op)
        if op.regions:
            self._need_control(op)
            results: list[ir.Value] = list(op.results)
            self._todo += _region_sources(op, results.index(value))
        else:
            self._need_operands(op)

    def _visit_argument(self, argument: ir.BlockArgument) -> None:
        op = argument.owner.owner.operation
        if op == self._function:
            return
        self._need_ancestors(op)
        self._need_control(op)
        self.ops.add(op)
        self._todo += _argument_sources(op, argument)

    def _need_operands(self, op: ir.Operation) -> None:
        """Need all operands, and the contents of arrays that the operation may read."""
        for operand in op.operands:
            if isinstance(operand.type, ir.MemRefType) and op.name not in ALLOCATIONS:
                self._need_array(operand)
            self._todo.append(operand)

    def _need_array(self, array: ir.Value) -> None:
        """Need all writes to an array. It must be the body's own, and not written from a token."""
        root = _root(array)
        if root in self._arrays:
            return
        self._arrays.add(root)
        if isinstance(root, ir.BlockArgument) or root.owner.name not in ALLOCATIONS:
            raise _NeedsPayload
        for op in _uses_of_array(root):
            if op.name == "df.get_block":
                raise _NeedsPayload
            if op.name.startswith(("df.", "memref.load", "memref.dealloc")):
                continue
            self._need_ancestors(op)
            self.ops.add(op)
            self._need_operands(op)

    def _need_ancestors(self, op: ir.Operation) -> None:
        """Need the control operands of all operations around this one."""
        parent = op.parent
        while parent is not None and parent.operation != self._function:
            self._need_control(parent.operation)
            parent = parent.operation.parent

    def _need_control(self, op: ir.Operation) -> None:
        operands = list(op.operands)
        if op.name == "scf.while":
            self._todo.append(_terminator(op, 0).operands[0])
        elif op.name in BRANCHES:
            self._todo += operands
        elif op.name in LOOPS:
            self._todo += operands[: len(operands) - len(op.results)]
        else:
            raise _NeedsPayload


def _terminator(op: ir.Operation, region: int) -> ir.Operation:
    return list(op.regions[region].blocks[0].operations)[-1].operation


def _region_sources(op: ir.Operation, number: int) -> list[ir.Value]:
    """Return the values that a result of an operation with regions may take."""
    if op.name in LOOPS:
        return _carried(op, number)
    if op.name == "scf.while":
        return [_terminator(op, 0).operands[1 + number]]
    if op.name in BRANCHES:
        return [_terminator(op, region).operands[number] for region in range(2)]
    raise _NeedsPayload


def _argument_sources(op: ir.Operation, argument: ir.BlockArgument) -> list[ir.Value]:
    """Return the values that a block argument of an operation with regions may take."""
    number = argument.arg_number
    if op.name in LOOPS:
        return _carried(op, number - 1) if number else []
    if op.name == "scf.while":
        is_before = argument.owner == op.regions[0].blocks[0]
        if is_before:
            return [op.operands[number], _terminator(op, 1).operands[number]]
        return [_terminator(op, 0).operands[1 + number]]
    raise _NeedsPayload


def _carried(op: ir.Operation, number: int) -> list[ir.Value]:
    """The values of a loop-carried variable: at the start, and from the round before."""
    initial = list(op.operands)[len(op.operands) - len(op.results) + number]
    return [initial, _terminator(op, 0).operands[number]]


def _root(array: ir.Value) -> ir.Value:
    """The array that views lead to."""
    while not isinstance(array, ir.BlockArgument):
        views = [o for o in array.owner.operands if isinstance(o.type, ir.MemRefType)]
        if not array.owner.name.startswith("memref.") or len(views) != 1:
            break
        array = views[0]
    return array


def _uses_of_array(root: ir.Value) -> Iterator[ir.Operation]:
    """Operations that use an array or a view of it."""
    todo = [root]
    while todo:
        for use in todo.pop().uses:
            op = use.owner.operation
            yield op
            todo += [r for r in op.results if isinstance(r.type, ir.MemRefType)]


def _erase(block: ir.Block, needed: set[ir.Operation]) -> None:
    for op in reversed([op.operation for op in block.operations]):
        if op.name in TERMINATORS or op.name in ALLOCATIONS or op.name.startswith("df."):
            continue
        if not any(inner in needed or inner.name.startswith("df.") for inner in nested_ops(op)):
            replace_by_zero(op)
            op.erase()
        elif op.name in (*LOOPS, *BRANCHES, "scf.while"):
            for region in op.regions:
                for inner_block in region.blocks:
                    _erase(inner_block, needed)


def replace_by_zero(op: ir.Operation) -> None:
    """Replace the results of an operation by zeros."""
    for result in op.results:
        if not any(True for _ in result.uses):
            continue
        with ir.InsertionPoint(op), op.location:
            result.replace_all_uses_with(zero(result.type))


def zero(type_: ir.Type) -> ir.Value:
    """A zero of a scalar type, at the insertion point."""
    is_float = isinstance(type_, ir.FloatType)
    value = ir.FloatAttr.get(type_, 0.0) if is_float else ir.IntegerAttr.get(type_, 0)
    return arith.ConstantOp(type_, value).result
