"""Data flow analysis of a task body: values that are data, and values that decide on control.

Data comes from tensors, streams and state, is computed from such values, or is stored in the same place. Everything
else (indices, loop counters, the pid) stays as it is, and becomes a field element where it meets data. Control that
depends on data is rejected with its place, except branches without stream operations, which become choices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import Operation, Value, ir, nested_ops
from allo_dse.common.mlir.dialect import POLLS
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.simulator.codegen.stream_ops import find

HINT = "such programs are compared on numbers: `verify` runs them, `simulate` gives their results"
MEMORY = ("memref.alloc", "memref.alloca")
_BLOCKS = ("df.get_block", "df.put_block")


class Undecidable(SimulationError):
    """The program is not one function for all inputs, or the comparison cannot tell."""


class Unwritten(Undecidable):
    """A result depends on memory that was never written."""


class TooMuchWork(Undecidable):
    """The comparison takes more work than allowed."""


class DataValues:
    """The data values of a task body, and the branches that depend on them.

    Attributes:
        data: values and arrays that hold data.
        branches: `scf.if` operations on data that become choices, inner ones first; none if data decides by its number
            on given inputs (`by_path`).
    """

    def __init__(self, function: Operation, task_class: TaskClass, words: Value, *, by_path: bool) -> None:
        self._class, self._by_path = task_class, by_path
        self._ops = nested_ops(function)
        self._next: dict[Value, list[Value]] = defaultdict(list)
        self.data: set[Value] = set()
        seeds: list[Value] = [
            a for a in function.regions[0].blocks[0].arguments if isinstance(a.type, ir.MemRefType) and a != words
        ]
        for op in self._ops:
            self._connect(op)
            if op.name in _BLOCKS:
                seeds.append(op.operands[1])
            elif op.name == "df.get" or (op.name in MEMORY and _may_be_undefined(op.results[0])):
                seeds.append(op.results[0])
        self._spread(seeds)
        self.branches = [] if by_path else self._choices()
        self._require_control()

    def _choices(self) -> list[Operation]:
        """Return branches on data. Their writes become data too, which may add further branches."""
        # Iterate to a fixed point: a branch turns everything it writes into data, possibly another condition too.
        # Values never stop being data, so this terminates.
        known = -1
        while known != len(self.data):
            known = len(self.data)
            branches = [op for op in self._ops if op.name == "scf.if" and op.operands[0] in self.data]
            for branch in branches:
                self._spread(branch.results)
                self._spread(op.operands[1] for op in find(branch, "memref.store"))
        return branches

    def _spread(self, values: Iterable[Value]) -> None:
        todo = list(values)
        while todo:
            value = todo.pop()
            if value not in self.data:
                self.data.add(value)
                todo += self._next[value]

    def _connect(self, op: Operation) -> None:
        """Record the values and arrays that an operation passes its operands on to."""
        for k, operand in enumerate(op.operands):
            self._next[operand] += self.targets(op, k)
        for result in op.results:
            if isinstance(result.type, ir.MemRefType):  # another name for an array
                self._next[result] += [o for o in op.operands if isinstance(o.type, ir.MemRefType)]

    def targets(self, op: Operation, k: int) -> list[Value]:
        """Return the values and arrays that operand `k` of an operation flows into, as it is or in a result."""
        if op.name == "memref.store":
            return [op.operands[1]] if k == 0 else []
        if op.name == "memref.load":
            return [op.results[0]] if k == 0 else []
        if op.name == "scf.for":
            return [op.regions[0].blocks[0].arguments[k - 2], op.results[k - 3]] if k >= 3 else []
        if op.name == "scf.while":
            return [op.regions[0].blocks[0].arguments[k]]
        if op.name in ("scf.yield", "affine.yield", "scf.condition"):
            parent = op.block.owner.operation
            if op.name == "scf.condition":
                return [parent.results[k - 1], parent.regions[1].blocks[0].arguments[k - 1]] if k else []
            if parent.name == "scf.while":
                return [parent.regions[0].blocks[0].arguments[k]]
            carried = [parent.regions[0].blocks[0].arguments[k + 1]] if parent.name == "scf.for" else []
            return [parent.results[k], *carried]
        if op.regions or op.name.startswith("df."):
            return []
        return [r for r in op.results if not (self._by_path and isinstance(r.type, ir.IndexType))]

    def _require_control(self) -> None:
        """Check that no data decides on control, and that branches on data have no stream operations."""
        for op in self._ops:
            if op.name in POLLS:
                raise self._refusal("what it does depends on when tokens come", op)
            if op.name == "llvm.call":
                raise self._refusal("what a vendor kernel computes is not in the program", op)
            if self._by_path:
                continue
            if op.name == "scf.condition" and op.operands[0] in self.data:
                raise self._refusal("data decides how often a loop runs", op)
            if any(isinstance(result.type, ir.IndexType) and result in self.data for result in op.results):
                raise self._refusal("data decides on an index or on how often a loop runs", op)
        for op in (inner for branch in self.branches for inner in nested_ops(branch)):
            if op.name.startswith("df.") and op.name != "df.cost":
                raise self._refusal("data decides whether a stream is used", op)

    def _refusal(self, what: str, op: Operation) -> Undecidable:
        """Return the error with its place in the source: that of the stream operation or of the innermost loop."""
        location = self._class.location
        around: Operation | None = op
        while around is not None and around.name != "func.func":
            if around.name.startswith("df.") and "op" in around.attributes:
                location = self._class.stream_ops[ir.IntegerAttr(around.attributes["op"]).value].location
                break
            if "df.loop" in around.attributes:
                location = self._class.loops[ir.IntegerAttr(around.attributes["df.loop"]).value].location
                break
            around = around.parent and around.parent.operation
        return Undecidable(f"{location}: {what}, so that the program has no one formula to compare", hint=HINT)


def _may_be_undefined(memory: Value) -> bool:
    """Return whether a variable may be read before it is written, or an array is never written."""
    uses = [use.owner.operation for use in memory.uses]
    if ir.MemRefType(memory.type).rank:
        return all(op.name in ("memref.load", "memref.dealloc", "df.put_block") for op in uses)
    writes = [op for op in uses if op.name != "memref.load"]
    return not all(any(_comes_before(write, op) for write in writes) for op in uses if op.name == "memref.load")


def _comes_before(write: Operation, read: Operation) -> bool:
    """Return whether one operation always runs before the other, whenever the other runs."""
    around: Operation | None = read
    while around is not None and around.name != "func.func":
        if around.block == write.block:
            return around != write and write.is_before_in_block(around)
        around = around.parent and around.parent.operation
    return False
