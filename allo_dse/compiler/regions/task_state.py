"""The state of compiling one set of tasks of a kernel: its text, names, work and stream ports.

All tasks of the set must run the same code. Where a compile-time condition tells them apart, `Task.decide` raises
`Split` and compilation starts over with each part.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Array, Frozen, Ints
from allo_dse.lang.memory import Memory
from allo_dse.lang.types import DType, Float, Int, UInt, index
from allo_dse.lang.types import bool as bool_

from ..model.index_forms import Form
from ..model.mlir_text import FunctionText, dense, element_type, memref_type
from ..model.values import (
    Buffer,
    Const,
    Meta,
    PendingGet,
    RegionCall,
    Scalar,
    StreamRef,
    TileExpr,
    Value,
    Variable,
    pid_index,
    pid_of,
    selected,
)
from ..program.compiled import NO_TILES, ExternalCall, StateVariable, TileOp, TileUse
from ..program.tensors import (
    Construct,
    IndexCheck,
    IntArray,
    LayoutStep,
    LayoutUse,
    SourceLocation,
    SourceLoop,
    StreamArray,
    StreamOp,
)
from .region_sources import KernelSource, Parameter, RegionSource, SharedArray, Sync

# Executions of something in each task: a number, a value per task, or None if it depends on data.
Count = int | IntArray | None


class PortUse(Struct, eq=False):
    """A stream argument of the body under construction.

    Attributes:
        index: per dimension of the stream array its index, or None where the body computes the index at run time.
        tokens: tokens that move.
        parts: where the body computes the index, the streams that it can reach.
        certain: whether all tasks surely use the stream.
        last: the last operation on it.
    """

    stream: StreamArray
    direction: Literal["get", "put"]
    ssa: str
    index: tuple[Meta, ...] | None
    node: ast.AST
    tokens: Count = 0
    parts: dict[Any, PortUse] = {}
    certain: bool = True
    last: ast.AST | None = None

    @property
    def fixed(self) -> list[PortUse]:
        """The ports with known indices that this stands for."""
        return [self] if self.index is not None else list(self.parts.values())

    def add(self, tokens: Count, node: ast.AST) -> None:
        """Count more tokens, which `node` moves."""
        self.last = node
        self.tokens = None if self.tokens is None or tokens is None else self.tokens + tokens


class Scope(Struct, eq=False):
    """Names declared in one block.

    Attributes:
        helper: whether it is the outermost block of an inlined function, which sees no names around it.
        hidden: names that a function defined inside a kernel assigns: they are its own.
        fixed: variables of loops: they cannot be assigned.
        chosen: names that the taken branches of compile-time conditions declared.
    """

    names: dict[str, Value] = {}
    helper: bool = False
    hidden: frozenset[str] = frozenset()
    fixed: set[str] = set()
    chosen: set[str] = set()


class Frame(Struct, eq=False):
    """The target of `break`, `continue` or `return`: a loop, or the function itself.

    Attributes:
        loop: whether it is a loop.
        loops, guards: the number of loops and data-dependent conditions around it.
        skip: the flag that the rest of the iteration (or function) is not executed.
        stop: the flag that the loop is left.
        jumps: the number of jumps to it so far.
        unrolled: whether it is a loop at compile time.
        ended: whether such a loop has been left at compile time.
        returns: the declared type of a helper function's result, if it has one.
        result: the value returned at its end.
        slots: the storage for results of conditional returns.
    """

    loop: bool
    loops: int
    guards: int
    skip: Variable | None = None
    stop: Variable | None = None
    jumps: int = 0
    unrolled: bool = False
    ended: bool = False
    returns: Any = None
    result: Value | None = None
    slots: tuple[Variable | Buffer, ...] | None = None


class LoopWork(Struct, eq=False):
    """The contents of a loop: its own scalar work and stream polls, and other loops.

    Attributes:
        variable: the loop's own, if it has one.
    """

    has_scalar_work: bool = False
    has_loops: bool = False
    polls: bool = False
    variable: Form | None = None


Mask = NDArray[np.bool_]


_ELEMENTS: dict[str, Callable[[int], DType]] = {"i": Int, "u": UInt, "f": Float, "b": lambda bits: bool_}


class Split(Exception):
    """The tasks of a set must be compiled apart; `masks` are the parts."""

    def __init__(self, masks: Sequence[Mask]) -> None:
        super().__init__("tasks differ")
        self.masks = masks


# Layouts: a body that reads `local_B` in `allo.matmul(local_A, allo.transpose(local_B))` and nowhere else never needs
# the tile in its DRAM layout. Notes are taken while the body is compiled: every read and write of an array, and every
# operation that only rearranges a whole array into another one.

_REARRANGING = ("transpose", "view")


class _Note(Frozen):
    """An operation that fills the array `target` with a rearrangement of `source` (of `shape`)."""

    source: str
    target: str
    shape: Ints
    step: LayoutStep
    site: int


class LayoutNotes(Struct):
    """Accesses and rearrangements of a body's arrays, by the name of the array."""

    reads: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, int] = {}
    notes: list[_Note] = []

    def touch(self, buffer: Buffer, *, write: bool) -> None:
        """A read or write of an array, or of a part of it."""
        (self.writes if write else self.reads)[buffer.root] += 1
        if buffer.arg is not None:
            self.arguments[buffer.root] = buffer.arg

    def rearranged(self, expr: TileExpr, operand: Value, target: Buffer, site: int) -> None:
        """An operation on tiles, priced at `site` of the body's work."""
        if expr.op not in _REARRANGING or not isinstance(operand, Buffer) or operand.dtype != target.dtype:
            return
        if operand.ssa != operand.root or target.ssa != target.root:
            return
        argument = tuple(expr.options) if expr.op == "transpose" else expr.shape
        step = LayoutStep("transpose" if expr.op == "transpose" else "view", argument)
        self.notes.append(_Note(operand.root, target.root, operand.shape, step, site))

    def uses(self) -> tuple[LayoutUse, ...]:
        """The arguments all of whose reads, or whose only write, are one rearrangement."""
        arguments = sorted(self.arguments.items(), key=lambda item: item[1])
        found = [use for root, arg in arguments for use in (self._read(root, arg), self._written(root, arg))]
        return tuple(use for use in found if use is not None)

    def _read(self, root: str, arg: int) -> LayoutUse | None:
        """As many steps from an argument on as are all that is done with what they start from."""
        passed: list[list[_Note]] = []
        arrays = [root] if not self.writes[root] else []
        while arrays and (found := self._only_notes(arrays)):
            passed.append(found)
            arrays = [note.target for note in found]
        if not passed:
            return None
        steps = tuple(found[0].step for found in passed)
        return LayoutUse(arg, "in", passed[0][0].shape, steps, tuple(note.site for found in passed for note in found))

    def _written(self, root: str, arg: int) -> LayoutUse | None:
        """As many steps back from an argument's only write as begin with an array that is used for nothing else."""
        passed: list[_Note] = []
        array = root if not self.reads[root] else ""
        while self.writes[array] == 1 and (found := [note for note in self.notes if note.target == array]):
            if found[0].source in self.arguments or self.reads[found[0].source] != 1:
                break
            passed.insert(0, found[0])
            array = found[0].source
        if not passed:
            return None
        steps, sites = tuple(note.step for note in passed), tuple(note.site for note in passed)
        return LayoutUse(arg, "out", passed[0].shape, steps, sites)

    def _only_notes(self, arrays: list[str]) -> list[_Note]:
        """The rearrangements that are all that is done with some arrays; none if they differ or more is done."""
        found = [note for note in self.notes if note.source in arrays]
        reads = sum(self.reads[array] for array in arrays)
        alike = len({note.step for note in found}) == 1
        filled_once = all(self.writes[note.target] == 1 and note.target not in self.arguments for note in found)
        return found if alike and filled_once and len(found) == reads else []


class Task(Struct, eq=False):
    """Compilation of the tasks in `mask` (which broadcasts against the kernel's mesh).

    Attributes:
        count: executions of the code being written, in each task.
        path: the answers of compile-time conditions so far; tasks with equal paths form a class.
        mutable: per function being inlined, the scalars that are assigned after their declaration.
        loops: the enclosing loops; the first entry is the function itself.
        guards: the number of data-dependent conditions around the code being written.
        facts: forms that are at least 0 by those conditions.
        calls: names of the helper functions being inlined.
        numbers: of those calls, and 0 before them; `called` is how many calls there have been.
        named: the arrays and variables by (function, call, name), as they were declared first.
        frames: the targets of jumps, innermost last.
        does_more: whether the tasks call regions and do other work too (see `statements.calls`).
        handovers: per called region the streams that start its tasks and report their end.
        shares: declarations of local arrays that called regions work on as well.
        wanted: the declarations of which that was found; when it is more than `shares`, the tasks are compiled again.
        shared: those arrays, as further parameters of the body.
        declared_at: where each local array was declared, by the name of its buffer.
        memories: the declared memories of arrays, by the names of their buffers.
        spreads: per local array what its tiles are parts of (see `expressions.tiles`).
        warnings: code that is valid but probably unintended; without repetitions.
        constructs: code that not every target builds; without repetitions.
        noticed: the kinds and nodes of those.
        dead: whether the code being written can never be reached, after a jump.
        returned: whether the innermost function has returned for certain.
        copies: the iterations of loops at compile time so far.
        copy: the iterations of the surrounding compile-time loops that meta_if tests.
        got: arrays that are tokens of streams as they came.
    """

    source: RegionSource
    kernel: KernelSource
    mask: Mask
    text: FunctionText = field(default_factory=FunctionText)
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    count: Count = 1
    work: list[TileOp] = []
    source_loops: list[SourceLoop] = []
    loop_arrays: dict[tuple[ast.AST | None, Ints], int] = {}
    stream_ops: list[StreamOp] = []
    index_checks: list[IndexCheck] = []
    ports: dict[Any, PortUse] = {}
    region_calls: list[RegionCall] = []
    does_more: bool = False
    shares: frozenset[ast.AST] = frozenset()
    wanted: set[ast.AST] = set()
    shared: list[SharedArray] = []
    declared_at: dict[str, ast.AST] = {}
    memories: dict[str, Memory] = {}
    handovers: list[Sync] = []
    state: list[StateVariable] = []
    externals: list[ExternalCall] = []
    reads: set[int] = set()
    layouts: LayoutNotes = field(default_factory=LayoutNotes)
    writes: set[int] = set()
    path: list[str] = []
    mutable: list[frozenset[str]] = []
    loops: list[LoopWork] = field(default_factory=lambda: [LoopWork()])
    guards: int = 0
    facts: list[Form] = []
    calls: list[str] = []
    numbers: list[int] = field(default_factory=lambda: [0])
    called: int = 0
    named: dict[tuple[str, int, str], str] = {}
    spreads: dict[str, Any] = {}
    frames: list[Frame] = field(default_factory=lambda: [Frame(False, 1, 0)])
    warnings: dict[str, None] = {}
    constructs: dict[Construct, None] = {}
    noticed: set[tuple[str, ast.AST]] = set()
    dead: bool = False
    returned: bool = False
    copies: int = 0
    copy: Ints = ()
    got: set[str] = set()

    # -- compilers: they need this class, and `task_classes` adds them -------------------------------------------------

    def lower(self, node: ast.expr) -> Value:
        """The value of an expression; run-time parts are written to the task's text."""
        raise NotImplementedError

    def lower_block(self, body: Sequence[ast.stmt]) -> None:
        """Compile the statements of one block, in the scope that is open."""
        raise NotImplementedError

    def lower_streams(self, base: StreamRef, node: ast.Subscript) -> Value:
        """Streams of an array."""
        raise NotImplementedError

    def receive(self, pending: PendingGet, target: Buffer) -> None:
        """Get blocks straight into a tile."""
        raise NotImplementedError

    # -- diagnostics -------------------------------------------------------------------------------------------------

    def fail(self, node: ast.AST, message: str, hint: str = "") -> NoReturn:
        self.source.file.fail(node, message, hint)

    def warn(self, node: ast.AST, message: str) -> None:
        self.warnings[f"{self.location(node)}: warning: {message}"] = None

    def notice(self, kind: str, node: ast.AST) -> None:
        """Remember something that not every target builds."""
        if (kind, node) not in self.noticed:  # a compile-time loop reaches the same node in every iteration
            self.noticed.add((kind, node))
            self.constructs[Construct(kind, ast.unparse(node), self.location(node))] = None

    def location(self, node: ast.AST) -> SourceLocation:
        return self.source.file.location(node)

    def parameter(self, position: int) -> Parameter:
        """Return the parameter of an argument of the body: the kernel's come first, then shared local arrays."""
        own = self.kernel.parameters
        return own[position] if position < len(own) else self.shared[position - len(own)].parameter

    # -- names -------------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        """A block: names declared in it end with it."""
        self.scopes.append(Scope())
        try:
            yield self.scopes[-1]
        finally:
            self.scopes.pop()

    @contextmanager
    def branch(self) -> Iterator[None]:
        """The taken branch of a compile-time condition: what it declares is there afterwards, unless it shadows."""
        with self.scope() as inner:
            yield
        outer = self.scopes[-1]
        for name, value in inner.names.items():
            if name in outer.chosen or self.find(name) is None:
                outer.names[name] = value
                outer.chosen.add(name)

    def find(self, name: str) -> Value | None:
        """The local variable `name`, if there is one."""
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
            if scope.helper or name in scope.hidden:
                return None
        return None

    def declare(self, name: str, value: Value) -> None:
        self.scopes[-1].names[name] = value
        if isinstance(value, Variable) or (isinstance(value, Buffer) and value.ssa == value.root):
            self.named.setdefault((self.function, self.numbers[-1], name), value.ssa)

    @property
    def function(self) -> str:
        """The name of the function being compiled: the kernel's, or that of a helper."""
        return self.calls[-1].partition("[")[0].rpartition(".")[2] if self.calls else self.kernel.name

    def declare_loop(self, name: str, value: Value, node: ast.AST) -> None:
        """The variable of a loop."""
        self.check_not_fixed(name, node)
        self.declare(name, value)
        self.scopes[-1].fixed.add(name)

    def check_not_fixed(self, name: str, node: ast.AST) -> None:
        """Refuse to redefine the variable of a running loop.

        Raises:
            ProgramError: if `name` is one.
        """
        for scope in reversed(self.scopes):
            if name in scope.fixed:
                self.fail(node, f"`{name}` is the variable of a loop around this", "use another name")
            if name in scope.names or scope.helper or name in scope.hidden:
                return

    def constants(self) -> dict[str, Any]:
        """The names that an expression evaluated by Python may use."""
        names = dict(self.source.names)
        visible: list[Scope] = []
        for scope in reversed(self.scopes):
            visible.append(scope)
            if scope.helper:
                break
        for scope in reversed(visible):
            for name, value in scope.names.items():
                if isinstance(value, Const):
                    names[name] = value.value
                else:
                    names.pop(name, None)
        return names

    def is_mutable(self, name: str) -> bool:
        """Return whether a scalar variable is assigned after its declaration."""
        return name in self.mutable[-1]

    # -- sets of tasks -----------------------------------------------------------------------------------------------

    def unrolled(self, values: range, node: ast.AST, decides: bool = False) -> Iterator[int]:
        """The values of a loop at compile time.

        Args:
            decides: whether `meta_if` looks at its variable.

        Raises:
            ProgramError: when they are too many, with those of such loops before and around it.
        """
        self.copies += max(0, -((values.start - values.stop) // values.step))
        try:
            self.source.rules.allow("unrolled", self.copies, f"kernel `{self.kernel.name}`")
        except ProgramError as error:
            self.fail(node, error.message, error.hint)
        outer = self.copy
        try:
            for value in values:
                self.copy = (*outer, value) if decides else outer
                yield value
        finally:
            self.copy = outer

    def decide(self, condition: Value, node: ast.AST) -> bool:
        """Evaluate a compile-time condition; splits the set of tasks where they differ."""
        if isinstance(condition, Const):
            answer = bool(condition.value)
        elif isinstance(condition, Meta):
            answer = bool(self._same(condition))
        else:
            self.fail(
                node,
                "this condition must be known at compile time",
                "use `if` for conditions that depend on data",
            )
        self.path.append("1" if answer else "0")
        return answer

    def uniform(self, value: Meta) -> Any:
        """The one value that all tasks of the set have; splits the set where they differ."""
        result = self._same(value)
        if value.array.size > 1:
            self.path.append(f"v{result}".replace("-", "m").replace(".", "p"))
        return result

    def _same(self, value: Meta) -> Any:
        values = selected(value.array, self.mask)
        first = values[0]
        if (values != first).any():
            raise Split([self.mask & (value.array == v) for v in np.unique(values)[::-1]])
        return first.item() if isinstance(first, np.generic) else first

    def per_task(self, value: Meta) -> Array:
        """The values that the tasks of the set have."""
        return selected(value.array, self.mask)

    @property
    def pids(self) -> tuple[Meta, ...]:
        """The process id along each mesh axis."""
        return tuple(pid_of(self.kernel.mesh, axis) for axis in range(len(self.kernel.mesh)))

    def published(self, count: Count) -> int | None:
        """A count as it is reported: None where it is not the same for all tasks."""
        if isinstance(count, np.ndarray):
            values = selected(count, self.mask)
            return int(values[0]) if (values == values[0]).all() else None
        return count

    # -- text --------------------------------------------------------------------------------------------------------

    def emit(self, text: str, dtype: DType) -> Scalar:
        """Write an operation with one result."""
        return Scalar(self.text.op(text), dtype)

    def number(self, value: float, dtype: DType) -> Scalar:
        """A constant."""
        return Scalar(self.text.constant(value, dtype), dtype)

    def variable(self, dtype: DType, name: str = "") -> Variable:
        """A mutable scalar; `name` is its name in the source."""
        return Variable(self.text.slot(f"memref<{element_type(dtype)}>", name), dtype)

    def get(self, variable: Variable) -> Scalar:
        """The value that a mutable scalar has now."""
        return self.emit(f"memref.load {variable.ssa}[] : memref<{element_type(variable.dtype)}>", variable.dtype)

    def set(self, variable: Variable, value: Scalar) -> None:
        """Give a mutable scalar a value of its type."""
        self.text.line(f"memref.store {value.ssa}, {variable.ssa}[] : memref<{element_type(variable.dtype)}>")

    def pid(self, value: Meta) -> str:
        """The run-time value (an `index`) of a function of the pid."""
        return pid_index(self.text, value, self.table_entry)

    def table_entry(self, values: Array, dtype: DType) -> str:
        """This task's entry of an array that broadcasts against the mesh."""
        table = self.constant_buffer(values, dtype)
        zero = self.text.constant(0, index)
        where = ", ".join(f"%pid{a}" if n > 1 else zero for a, n in enumerate(values.shape))
        return self.text.shared(f"memref.load {table.ssa}[{where}] : {table.type}")

    def new_buffer(self, dtype: DType, shape: Ints, name: str = "") -> Buffer:
        """A local array; `name` is its name in the source."""
        type_ = memref_type(dtype, shape)
        ssa = self.text.alloc(type_, name)
        return Buffer(ssa, dtype, shape, type_, ssa)

    def shared_buffer(self, name: str, dtype: DType, initial: Array, node: ast.AST) -> Buffer:
        """A local array that called regions work on as well: one more argument of the body."""
        position = len(self.kernel.parameters) + len(self.shared)
        same = sum(one.parameter.node is node for one in self.shared)  # declared once, but compiled several times
        line = self.location(node).line
        full = f"{self.kernel.name}_{name}_{line}" + (f"_{same}" if same else "")
        self.shared.append(SharedArray.of_kernel(self.kernel, full, dtype, initial, node))
        type_ = memref_type(dtype, initial.shape, strided=True)
        return Buffer(ssa := f"%shared{len(self.shared) - 1}", dtype, initial.shape, type_, ssa, position)

    def constant_buffer(self, array: Array, dtype: DType | None = None) -> Buffer:
        """A constant array in memory, of the given type or that of the array."""
        dtype = dtype or _ELEMENTS[array.dtype.kind](array.dtype.itemsize * 8)
        type_ = memref_type(dtype, array.shape)
        ssa = self.text.global_constant(self.kernel.name, dense(array, dtype), type_)
        return Buffer(ssa, dtype, array.shape, type_, ssa, constant=True)

    # -- work --------------------------------------------------------------------------------------------------------

    def touch(self, buffer: Buffer, *, write: bool) -> None:
        """Note that the body reads or writes a buffer."""
        if buffer.arg is not None:
            (self.writes if write else self.reads).add(buffer.arg)
        self.layouts.touch(buffer, write=write)

    def price(
        self,
        kind: str,
        shape: Ints,
        dtypes: Sequence[DType],
        node: ast.AST,
        name: str = "",
        use: TileUse = NO_TILES,
    ) -> None:
        """Record work that was just written, and let the body's clock advance by its cost."""
        site = len(self.work)
        count = self.published(self.count)
        counts = self.count if count is None and isinstance(self.count, np.ndarray) else None
        self.work.append(TileOp(kind, shape, tuple(dtypes), count, self.location(node), name, use, counts))
        self.text.line(f'"df.cost"() {{site = {site} : i64}} : () -> ()')

    def scalar_op(self) -> None:
        """Note that the innermost loop contains scalar work."""
        self.loops[-1].has_scalar_work = True

    def poll(self) -> None:
        """Note that the innermost loop polls streams."""
        self.scalar_op()
        self.loops[-1].polls = True

    @contextmanager
    def loop(self) -> Iterator[LoopWork]:
        """A run-time loop."""
        self.loops[-1].has_loops = True
        self.loops.append(LoopWork())
        yield self.loops[-1]
        self.loops.pop()

    @contextmanager
    def guarded(self, facts: Sequence[Form] = ()) -> Iterator[None]:
        """Guard the code compiled inside by a run-time condition, under which `facts` are at least 0."""
        known = len(self.facts)
        self.facts.extend(facts)
        self.guards += 1
        with self.repeated(None):
            yield
        self.guards -= 1
        del self.facts[known:]

    @contextmanager
    def repeated(self, trips: Count) -> Iterator[None]:
        """Count the code compiled inside as running `trips` times for each time outside."""
        outer = self.count
        self.count = None if outer is None or trips is None else outer * trips
        yield
        self.count = outer
