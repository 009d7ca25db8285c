"""buffer_at and reuse_at: small memories beside large ones; reshape: another shape of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import Operation, Value, arith, ir, memref, scf
from allo_dse.common.records import Frozen, replace

from ..ir.affine import Linear, LinearForms, Ranges, extent
from .body import NAME, Body, around, inner_block, is_pure
from .lookup import Found
from .loops import bounds, constant, known, new_loop, variable

# A window is the box of elements that the iterations of a loop use. Its `base` moves with the loop and those around it;
# `low` and `size` give the elements that all accesses together use.


class Window(Frozen):
    """The indices that are used along one dimension: `base + low`, ..., `base + low + size - 1`."""

    base: Linear
    low: int
    size: int


class IndexForms:
    """Index values of a body as linear forms of its variables, and back again."""

    def __init__(self, body: Body) -> None:
        self._forms = LinearForms()
        self._values: list[Value] = []
        self.ranges = self._forms.ranges
        self._number: dict[Value, int] = {}
        for argument in body.block.arguments:
            if isinstance(argument.type, ir.IndexType):
                self._variable(argument)
        self._read(body.block)

    def _variable(self, value: Value) -> int:
        number = self._number[value] = len(self._values)
        self._values.append(value)
        self._forms.set(value, Linear.variable(number))
        return number

    def _read(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "scf.for":
                self._variable(op.regions[0].blocks[0].arguments[0])
                self._forms.bounds(op)
            elif op.name != "arith.constant" and not (is_pure(op) and self._forms.compute(op)):
                for result in op.results:
                    if isinstance(result.type, ir.IndexType):
                        self._variable(result)  # a value that only data gives
            for region in op.regions:
                for inner in region.blocks:
                    self._read(inner)

    def of(self, value: Value) -> Linear | None:
        return self._forms.get(value)

    def number(self, value: Value) -> int:
        """The number of a variable."""
        return self._number[value]

    def inside(self, loop: Operation) -> set[int]:
        """The variables that get their values inside a loop."""
        own = set()
        for number, value in enumerate(self._values):
            op = value.owner.owner.operation if isinstance(value, ir.BlockArgument) else value.owner
            if is_within(op, loop) and value != loop.regions[0].blocks[0].arguments[0]:
                own.add(number)
        return own

    def write(self, form: Linear) -> Value:
        """Compute a form where code is being written."""
        total: Value | None = None
        for number, factor in form.terms:
            value = self._values[number]
            part = value if factor == 1 else arith.MulIOp(value, constant(factor)).result
            total = part if total is None else arith.AddIOp(total, part).result
        if total is None:
            return constant(form.constant)
        return arith.AddIOp(total, constant(form.constant)).result if form.constant else total


def is_within(op: Operation, loop: Operation) -> bool:
    """Return whether an operation is a loop or lies inside it."""
    return any(outer == loop for outer in (op, *around(op)))


def accesses(loop: Operation, array: Value, others: Sequence[str] = ()) -> list[Operation]:
    """The loads and stores of an array in a loop, and what else is accepted.

    Raises:
        ProgramError: where the array is used in another way.
    """
    found = []
    for use in array.uses:
        op = use.owner.operation
        if not is_within(op, loop):
            continue
        if op.name not in ("memref.load", "memref.store", *others):
            raise ProgramError("the array is used as a whole here, or parts of it", hint="use single elements")
        found.append(op)
    return found


def indices(op: Operation) -> list[Value]:
    """Return the indices of a load or store."""
    operands = list(op.operands)
    return operands[2:] if op.name == "memref.store" else operands[1:]


def windows(forms: IndexForms, ops: Sequence[Operation], shape: Sequence[int], moving: set[int]) -> list[Window]:
    """Return the window of the accesses along each dimension, over all values of the variables in `moving`.

    A dimension whose accesses are not one box that moves as a whole gets a window from end to end.
    """
    return [
        _window([forms.of(indices(op)[axis]) for op in ops], size, forms.ranges, moving)
        for axis, size in enumerate(shape)
    ]


def _window(used: Sequence[Linear | None], size: int, ranges: Ranges, moving: set[int]) -> Window:
    forms = [form for form in used if form is not None and not form.derived]
    inside = {variable for form in forms for variable, _ in form.terms} & moving
    bases = {tuple(term for term in form.terms if term[0] not in moving) for form in forms}
    if len(forms) == len(used) and inside <= ranges.keys() and len(bases) == 1:
        base = Linear(bases.pop())
        ends = [extent(form + base.scaled(-1), ranges) for form in forms]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        if high - low < size:
            return Window(base, low, high - low + 1)
    return Window(Linear(()), 0, size)


class _Part(Frozen):
    """The part of an array that each iteration of a loop uses.

    Attributes:
        ops, writes: the accesses, and whether some are stores.
        used: the window of each dimension.
    """

    found: Found
    array: Value
    ops: list[Operation]
    writes: bool
    forms: IndexForms
    used: list[Window]

    @staticmethod
    def of(found: Found, array: Value, name: str) -> _Part:
        ops = accesses(found.op, array)
        if not ops:
            raise ProgramError(f"loop `{found.name}` does not use `{name}`")
        forms = IndexForms(found.body)
        used = windows(forms, ops, list(ir.MemRefType(array.type).shape), forms.inside(found.op))
        return _Part(found, array, ops, any(op.name == "memref.store" for op in ops), forms, used)

    @property
    def kept(self) -> list[int]:
        """The dimensions that a buffer of it has."""
        return [axis for axis, window in enumerate(self.used) if window.size > 1]

    @property
    def sizes(self) -> list[int]:
        return [self.used[axis].size for axis in self.kept]

    def buffer(self, name: str) -> Value:
        """New memory for it, to which the accesses go."""
        buffer = _new_array(self.found, self.array, self.sizes, name)
        for op in self.ops:
            with ir.InsertionPoint(op):
                where = [self._inside(axis, indices(op)[axis]) for axis in self.kept]
            readdress(op, buffer, where)
        return buffer

    def _inside(self, axis: int, index: Value) -> Value:
        """The index in the buffer of an index in the array."""
        form, window = self.forms.of(index), self.used[axis]
        if form is None or form.derived:
            return index  # the dimension is there from end to end
        return self.forms.write(form + window.base.scaled(-1) + Linear((), -window.low))

    def element(self, position: Sequence[Value]) -> list[Value]:
        """Return the position in the array of an element of the buffer."""
        inner, found = dict(zip(self.kept, position, strict=True)), []
        for axis, window in enumerate(self.used):
            start = window.base + Linear((), window.low)
            if axis not in inner:
                found.append(self.forms.write(start))
            elif start.is_constant and not start.constant:
                found.append(inner[axis])
            else:
                found.append(arith.AddIOp(self.forms.write(start), inner[axis]).result)
        return found

    def load(self, position: Sequence[Value]) -> Value:
        """The element of the array that belongs at a position of the buffer."""
        return memref.LoadOp(self.array, self.element(position)).result


def readdress(op: Operation, memory: Value, where: Sequence[Value]) -> None:
    """Let a load or store go to an element of other memory."""
    with ir.InsertionPoint(op):
        if op.name == "memref.load":
            op.results[0].replace_all_uses_with(memref.LoadOp(memory, where).result)
        else:
            memref.StoreOp(op.operands[0], memory, where)
    op.erase()


def buffer_at(found: Found, array: Value, name: str) -> str:
    """Buffer the part of an array that the iterations of a loop use; returns the buffer's name.

    before:  for i: for k: for j: C[i, j] += ...
    after:   for i: { b[:] = C[i, :]; for k: for j: b[j] += ...; C[i, :] = b[:] }

    An array that is only read is not written back.
    """
    part, block = _Part.of(found, array, name), inner_block(found.op)
    buffer = part.buffer(f"{name}_buffer")
    for at_end in (False, True) if part.writes else (False,):
        point = ir.InsertionPoint.at_block_terminator(block) if at_end else ir.InsertionPoint.at_block_begin(block)
        with point, _loops(found, part.sizes, "back" if at_end else "init") as position:
            if at_end:
                there = part.element(position)
                memref.StoreOp(memref.LoadOp(buffer, position).result, array, there)
            else:
                memref.StoreOp(part.load(position), buffer, position)
    return found.body.name_of(buffer)


def reuse_at(found: Found, array: Value, name: str) -> str:
    """Elements of an array that the next rounds of a loop read again lie in a buffer; returns the buffer's name.

    before:  for i: ... A[i] + A[i + 1] + A[i + 2]
    after:   for i: { b[0] = b[1]; b[1] = b[2]; b[2] = A[i + 2] (in the first round all of b); ... b[0] + b[1] + b[2] }
    """
    part, loop = _Part.of(found, array, name), found.op
    if part.writes:
        raise ProgramError(f"loop `{found.name}` writes `{name}`", hint="buffer_at is for arrays that are written")
    first, _, step = (known(value) for value in bounds(loop))
    if first is None or step != 1:
        raise ProgramError(f"`{found.name}` must begin at a number and count by one")
    own = part.forms.number(variable(loop))
    moving = [(axis, by) for axis, window in enumerate(part.used) if (by := window.base.factor(own))]
    axis, stride = moving[0] if len(moving) == 1 else (0, 0)
    if stride < 1 or part.used[axis].size <= stride:
        raise ProgramError(f"rounds of `{found.name}` do not read elements of `{name}` that lie in a row again")
    buffer, place = part.buffer(f"{name}_reuse_{found.name}"), part.kept.index(axis)
    stays, others = part.sizes[place] - stride, [*part.sizes[:place], *part.sizes[place + 1 :]]

    def at(rest: Sequence[Value], slot: int) -> list[Value]:
        return [*rest[:place], constant(slot), *rest[place:]]

    def fill(rest: Sequence[Value], slots: range) -> None:
        for slot in slots:
            where = at(rest, slot)
            memref.StoreOp(part.load(where), buffer, where)

    with ir.InsertionPoint.at_block_begin(inner_block(loop)):
        is_first = arith.CmpIOp(arith.CmpIPredicate.eq, variable(loop), constant(first)).result
        with _loops(found, others, "reuse") as rest:
            choice = scf.IfOp(is_first, has_else=True)
            with ir.InsertionPoint(choice.then_block):
                fill(rest, range(stays))
                scf.YieldOp([])
            with ir.InsertionPoint(choice.else_block):
                for slot in range(stays):
                    moved = memref.LoadOp(buffer, at(rest, slot + stride)).result
                    memref.StoreOp(moved, buffer, at(rest, slot))
                scf.YieldOp([])
            fill(rest, range(stays, part.sizes[place]))
    return found.body.name_of(buffer)


def _new_array(found: Found, like: Value, sizes: Sequence[int], name: str) -> Value:
    """A local array, known by a name in the function of the loop."""
    body, source = found.body, found.body.source(found.op)
    type_ = ir.MemRefType.get(sizes, ir.MemRefType(like.type).element_type)
    taken = {body.name_of(value) for value in body.arrays.values()} | set(body.parameters)
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    with ir.InsertionPoint.at_block_begin(body.block):
        made = memref.AllocOp(type_, [], []).operation
    made.attributes[NAME] = ir.StringAttr.get(unique)
    with ir.InsertionPoint.at_block_terminator(body.block):
        memref.DeallocOp(made.results[0])
    body.arrays[source.function, source.call, name] = made.results[0]
    return made.results[0]


@contextmanager
def _loops(found: Found, sizes: Sequence[int], what: str) -> Iterator[list[Value]]:
    """A nest of new named loops around the code that is written inside the block."""
    body, source = found.body, found.body.source(found.op)
    variables: list[Value] = []
    with ExitStack() as stack:
        for depth, size in enumerate(sizes):
            own = f"{source.name}_{what}" + (f"_{depth}" if depth else "")
            mark = body.marked(replace(source, grid=""), own)
            loop = new_loop(mark, constant(0), constant(size), constant(1))
            variables.append(variable(loop))
            stack.enter_context(ir.InsertionPoint.at_block_terminator(inner_block(loop)))
        yield variables


def reshape(body: Body, array: Value, name: str, shape: Sequence[int]) -> None:
    """Another shape of an array, with the elements in the same order.

    before:  B: int32[10, 10] ... B[x, y]        after reshape(B, (20, 5)):  B: int32[20, 5] ... B[flat // 5, flat % 5]
    """
    old = ir.MemRefType(array.type)
    if not all(isinstance(n, int) and n > 0 for n in shape) or math.prod(shape) != math.prod(old.shape):
        raise ProgramError(f"`{name}` has {math.prod(old.shape)} elements, which {tuple(shape)} does not hold")
    used = accesses(body.function, array, ("memref.dealloc",))
    made = _reshaped(body, array, shape)
    for op in used:
        with ir.InsertionPoint(op):
            flat = constant(0)
            for index, size in zip(indices(op), old.shape, strict=False):
                flat = arith.AddIOp(arith.MulIOp(flat, constant(size)).result, index).result
            where: list[Value] = []
            for size in reversed(shape):
                quotient = arith.FloorDivSIOp(flat, constant(size)).result
                where.insert(0, arith.SubIOp(flat, arith.MulIOp(quotient, constant(size)).result).result)
                flat = quotient
            if op.name == "memref.dealloc":
                memref.DeallocOp(made)
        if op.name == "memref.dealloc":
            op.erase()
        else:
            readdress(op, made, where)
    if made != array:
        array.owner.erase()


def returned(body: Body, array: Value) -> list[Value]:
    """The arguments that a local array is copied to, element by element, to return it."""

    def is_copy(use: Operation) -> bool:
        source = use.operands[0].owner if use.name == "memref.store" else None
        return (
            isinstance(source, Operation | ir.OpView)
            and source.operation.name == "memref.load"
            and (source.operands[0], indices(source.operation)) == (array, indices(use))
        )

    uses = {one: [use.owner.operation for use in one.uses] for one in body.block.arguments}
    return [one for one, found in uses.items() if found and one != array and all(map(is_copy, found))]


def _reshaped(body: Body, array: Value, shape: Sequence[int]) -> Value:
    """The memory in its new shape: an argument is changed, of a local array there is a new one."""
    element = ir.MemRefType(array.type).element_type
    if isinstance(array, ir.BlockArgument):
        layout = f"strided<[{', '.join('?' * len(shape))}], offset: ?>"
        array.set_type(ir.MemRefType.get(shape, element, ir.Attribute.parse(layout)))
        body.retype()
        return array
    with ir.InsertionPoint(array.owner):
        made = memref.AllocOp(ir.MemRefType.get(shape, element), [], []).operation
    made.attributes[NAME] = ir.StringAttr.get(body.name_of(array))
    body.arrays.update({key: made.results[0] for key, value in body.arrays.items() if value == array})
    return made.results[0]
