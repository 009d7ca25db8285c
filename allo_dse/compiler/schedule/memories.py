"""buffer_at and reuse_at: small memories beside large ones; reshape: another shape of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import arith, ir, memref, scf
from allo_dse.common.records import replace

from ..ir.affine import Linear, LinearForms, Ranges, extent
from .body import LOOP, NAME, Body, inner_block, is_pure
from .find import Found
from .loops import bounds, constant, known, variable

# A window is the box of elements that the iterations of a loop use. Its `base` moves with the loop and those around it;
# `low` and `size` give the elements that all accesses together use.


class Window(Struct, frozen=True):
    """The indices that are used along one dimension: `base + low`, ..., `base + low + size - 1`."""

    base: Linear
    low: int
    size: int


class IndexForms:
    """Index values of a body as linear forms of its variables, and back again."""

    def __init__(self, body: Body) -> None:
        self._forms = LinearForms()
        self._values: list[ir.Value] = []
        self.ranges = self._forms.ranges
        self._number: dict[ir.Value, int] = {}
        for argument in body.block.arguments:
            if isinstance(argument.type, ir.IndexType):
                self._variable(argument)
        self._read(body.block)

    def _variable(self, value: ir.Value) -> int:
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

    def of(self, value: ir.Value) -> Linear | None:
        return self._forms.get(value)

    def number(self, value: ir.Value) -> int:
        """The number of a variable."""
        return self._number[value]

    def inside(self, loop: ir.Operation) -> set[int]:
        """The variables that get their values inside a loop."""
        own = set()
        for number, value in enumerate(self._values):
            op = value.owner.owner.operation if isinstance(value, ir.BlockArgument) else value.owner
            if is_within(op, loop) and value != loop.regions[0].blocks[0].arguments[0]:
                own.add(number)
        return own

    def write(self, form: Linear) -> ir.Value:
        """Compute a form where code is being written."""
        total: ir.Value | None = None
        for number, factor in form.terms:
            value = self._values[number]
            part = value if factor == 1 else arith.MulIOp(value, constant(factor)).result
            total = part if total is None else arith.AddIOp(total, part).result
        if total is None:
            return constant(form.constant)
        return arith.AddIOp(total, constant(form.constant)).result if form.constant else total


def is_within(op: ir.Operation, loop: ir.Operation) -> bool:
    """Return whether an operation is a loop or lies inside it."""
    outer: ir.Operation | None = op
    while outer is not None and outer != loop:
        outer = outer.parent
    return outer is not None


def accesses(loop: ir.Operation, array: ir.Value, others: Sequence[str] = ()) -> list[ir.Operation]:
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


def indices(op: ir.Operation) -> list[ir.Value]:
    """Return the indices of a load or store."""
    operands = list(op.operands)
    return operands[2:] if op.name == "memref.store" else operands[1:]


def windows(forms: IndexForms, ops: Sequence[ir.Operation], shape: Sequence[int], moving: set[int]) -> list[Window]:
    """Return the window of the accesses along each dimension, over all values of the variables in `moving`.

    A dimension whose accesses are not one box that moves as a whole gets a window from end to end.
    """
    return [
        _window([forms.of(indices(op)[axis]) for op in ops], size, forms.ranges, moving)
        for axis, size in enumerate(shape)
    ]


def _window(used: Sequence[Linear | None], size: int, ranges: Ranges, moving: set[int]) -> Window:
    whole = Window(Linear(()), 0, size)
    if any(form is None or form.derived or not _is_bounded(form, moving, ranges) for form in used):
        return whole
    known_forms = [form for form in used if form is not None]
    bases = {tuple(term for term in form.terms if term[0] not in moving) for form in known_forms}
    if len(bases) != 1:
        return whole
    base = Linear(bases.pop())
    spans = [extent(form + base.scaled(-1), ranges) for form in known_forms]
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    return Window(base, low, high - low + 1) if high - low + 1 <= size else whole


def _is_bounded(form: Linear, moving: set[int], ranges: Ranges) -> bool:
    return all(variable in ranges for variable, _ in form.terms if variable in moving)


def buffer_at(found: Found, array: ir.Value, name: str) -> str:
    """Buffer the part of an array that the iterations of a loop use; returns the buffer's name.

    before:  for i: for k: for j: C[i, j] += ...
    after:   for i: { b[:] = C[i, :]; for k: for j: b[j] += ...; C[i, :] = b[:] }

    An array that is only read is not written back.
    """
    body, loop = found.body, found.op
    ops = accesses(loop, array)
    if not ops:
        raise ProgramError(f"loop `{found.name}` does not use `{name}`")
    writes = any(op.name == "memref.store" for op in ops)
    shape = list(ir.MemRefType(array.type).shape)
    forms = IndexForms(body)
    used = windows(forms, ops, shape, forms.inside(loop))
    kept = [axis for axis, window in enumerate(used) if window.size > 1]
    buffer = _new_array(body, found, array, [used[axis].size for axis in kept], f"{name}_buffer")
    _redirect(forms, ops, buffer, used, kept)
    sizes = [used[axis].size for axis in kept]
    source = body.source(loop)
    block = inner_block(loop)
    for at_end in (False, True) if writes else (False,):
        point = ir.InsertionPoint.at_block_terminator(block) if at_end else ir.InsertionPoint.at_block_begin(block)
        with point, _loops(body, source.name, sizes, "back" if at_end else "init", found) as position:
            there = _global(forms, used, dict(zip(kept, position, strict=True)))
            if at_end:
                memref.StoreOp(memref.LoadOp(buffer, position).result, array, there)
            else:
                memref.StoreOp(memref.LoadOp(array, there).result, buffer, position)
    return body.name_of(buffer)


def reuse_at(found: Found, array: ir.Value, name: str) -> str:
    """Elements of an array that the next rounds of a loop read again lie in a buffer; returns the buffer's name.

    before:  for i: ... A[i] + A[i + 1] + A[i + 2]
    after:   for i: { b[0] = b[1]; b[1] = b[2]; b[2] = A[i + 2] (in the first round all of b); ... b[0] + b[1] + b[2] }
    """
    body, loop = found.body, found.op
    ops = accesses(loop, array)
    if not ops:
        raise ProgramError(f"loop `{found.name}` does not use `{name}`")
    if any(op.name == "memref.store" for op in ops):
        raise ProgramError(f"loop `{found.name}` writes `{name}`", hint="buffer_at is for arrays that are written")
    first, _, step = (known(value) for value in bounds(loop))
    if first is None or step != 1:
        raise ProgramError(f"`{found.name}` must begin at a number and count by one")
    shape = list(ir.MemRefType(array.type).shape)
    forms = IndexForms(body)
    used = windows(forms, ops, shape, forms.inside(loop))
    own = forms.number(variable(loop))
    axes = [axis for axis, window in enumerate(used) if window.base.factor(own)]
    stride = used[axes[0]].base.factor(own) if len(axes) == 1 else 0
    if stride < 1 or used[axes[0]].size <= stride:
        raise ProgramError(f"rounds of `{found.name}` do not read elements of `{name}` that lie in a row again")
    kept = [axis for axis, window in enumerate(used) if window.size > 1]
    sizes = [used[axis].size for axis in kept]
    buffer = _new_array(body, found, array, sizes, f"{name}_reuse_{found.name}")
    _redirect(forms, ops, buffer, used, kept)
    with ir.InsertionPoint.at_block_begin(inner_block(loop)):
        is_first = arith.CmpIOp(arith.CmpIPredicate.eq, variable(loop), constant(first)).result
        _fill(_Filling(found, array, buffer, used, kept, forms, stride), kept.index(axes[0]), is_first)
    return body.name_of(buffer)


class _Filling(Struct, frozen=True):
    """A buffer, and the part of an array that it holds in each iteration.

    Attributes:
        stride: the elements that the part advances by in each iteration.
    """

    found: Found
    array: ir.Value
    buffer: ir.Value
    used: Sequence[Window]
    kept: list[int]
    forms: IndexForms
    stride: int

    def load(self, position: Sequence[ir.Value]) -> ir.Value:
        """The element of the array that belongs at a position of the buffer."""
        there = _global(self.forms, self.used, dict(zip(self.kept, position, strict=True)))
        return memref.LoadOp(self.array, there).result


def _fill(filling: _Filling, axis: int, is_first: ir.Value) -> None:
    """The elements of the buffer move up by a round, and the last ones are read; in the first round all are."""
    found, sizes = filling.found, [filling.used[a].size for a in filling.kept]
    others = [size for position, size in enumerate(sizes) if position != axis]
    stays = sizes[axis] - filling.stride

    def at(rest: Sequence[ir.Value], index: ir.Value) -> list[ir.Value]:
        return [*rest[:axis], index, *rest[axis:]]

    with _loops(found.body, found.name, others, "reuse", found) as rest:
        choice = scf.IfOp(is_first, has_else=True)
        with ir.InsertionPoint(choice.then_block):
            for slot in range(stays):
                where = at(rest, constant(slot))
                memref.StoreOp(filling.load(where), filling.buffer, where)
            scf.YieldOp([])
        with ir.InsertionPoint(choice.else_block):
            for slot in range(stays):
                moved = memref.LoadOp(filling.buffer, at(rest, constant(slot + filling.stride))).result
                memref.StoreOp(moved, filling.buffer, at(rest, constant(slot)))
            scf.YieldOp([])
        for slot in range(stays, sizes[axis]):
            where = at(rest, constant(slot))
            memref.StoreOp(filling.load(where), filling.buffer, where)


def _new_array(body: Body, found: Found, like: ir.Value, sizes: Sequence[int], name: str) -> ir.Value:
    """A local array, known by a name in the function of the loop."""
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
    source = body.source(found.op)
    body.arrays[source.function, source.call, name] = made.results[0]
    return made.results[0]


def _redirect(
    forms: IndexForms, ops: Sequence[ir.Operation], buffer: ir.Value, used: Sequence[Window], kept: Sequence[int]
) -> None:
    """Let accesses of an array go to its buffer."""
    for op in ops:
        with ir.InsertionPoint(op):
            where = []
            for axis in kept:
                index, window = indices(op)[axis], used[axis]
                form = forms.of(index)
                moved = window.base.scaled(-1) + Linear((), -window.low)
                if form is not None and not form.derived:
                    where.append(forms.write(form + moved))
                else:
                    where.append(index)  # the dimension is there from end to end
            if op.name == "memref.load":
                op.results[0].replace_all_uses_with(memref.LoadOp(buffer, where).result)
            else:
                memref.StoreOp(op.operands[0], buffer, where)
        op.erase()


def _global(forms: IndexForms, used: Sequence[Window], inner: dict[int, ir.Value]) -> list[ir.Value]:
    """Return the position in the array of an element of the buffer."""
    found = []
    for axis, window in enumerate(used):
        start = window.base + Linear((), window.low)
        if axis not in inner:
            found.append(forms.write(start))
        elif start.is_constant and not start.constant:
            found.append(inner[axis])
        else:
            found.append(arith.AddIOp(forms.write(start), inner[axis]).result)
    return found


@contextmanager
def _loops(body: Body, name: str, sizes: Sequence[int], what: str, found: Found) -> Iterator[list[ir.Value]]:
    """A nest of new named loops around the code that is written inside the block."""
    source = body.source(found.op)
    points: list[ir.InsertionPoint] = []
    variables: list[ir.Value] = []
    for depth, size in enumerate(sizes):
        own = f"{name}_{what}" + (f"_{depth}" if depth else "")
        loop = scf.ForOp(constant(0), constant(size), constant(1)).operation
        loop.attributes[LOOP] = body.marked(replace(source, grid=""), own)
        block = inner_block(loop)
        with ir.InsertionPoint(block):
            end = scf.YieldOp([])
        variables.append(block.arguments[0])
        points.append(ir.InsertionPoint(end))
        points[-1].__enter__()
    try:
        yield variables
    finally:
        for point in reversed(points):
            point.__exit__(None, None, None)


def reshape(body: Body, array: ir.Value, name: str, shape: Sequence[int]) -> None:
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
            where = _unflat(_flat(indices(op), old.shape), shape)
            if op.name == "memref.load":
                op.results[0].replace_all_uses_with(memref.LoadOp(made, where).result)
            elif op.name == "memref.store":
                memref.StoreOp(op.operands[0], made, where)
            else:
                memref.DeallocOp(made)
        op.erase()
    if made != array:
        array.owner.erase()


def returned(body: Body, array: ir.Value) -> list[ir.Value]:
    """The arguments that a local array is copied to, element by element, to return it."""

    def is_copy(use: ir.Operation) -> bool:
        source = use.operands[0].owner if use.name == "memref.store" else None
        return (
            isinstance(source, ir.Operation | ir.OpView)
            and source.operation.name == "memref.load"
            and (source.operands[0], indices(source.operation)) == (array, indices(use))
        )

    uses = {one: [use.owner.operation for use in one.uses] for one in body.block.arguments}
    return [one for one, found in uses.items() if found and one != array and all(map(is_copy, found))]


def _reshaped(body: Body, array: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The memory in its new shape: an argument is changed, of a local array there is a new one."""
    element = ir.MemRefType(array.type).element_type
    if isinstance(array, ir.BlockArgument):
        layout = f"strided<[{', '.join('?' * len(shape))}], offset: ?>"
        array.set_type(ir.MemRefType.get(shape, element, ir.Attribute.parse(layout)))
        inputs = [argument.type for argument in body.block.arguments]
        body.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        return array
    with ir.InsertionPoint(array.owner):
        made = memref.AllocOp(ir.MemRefType.get(shape, element), [], []).operation
    made.attributes[NAME] = ir.StringAttr.get(body.name_of(array))
    body.arrays.update({key: made.results[0] for key, value in body.arrays.items() if value == array})
    return made.results[0]


def _flat(where: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
    """The position of an element in memory."""
    total = constant(0)
    for index, size in zip(where, shape, strict=False):
        total = arith.AddIOp(arith.MulIOp(total, constant(size)).result, index).result
    return total


def _unflat(flat: ir.Value, shape: Sequence[int]) -> list[ir.Value]:
    """The indices of the element at a position."""
    found: list[ir.Value] = []
    for size in reversed(shape):
        quotient = arith.FloorDivSIOp(flat, constant(size)).result
        found.insert(0, arith.SubIOp(flat, arith.MulIOp(quotient, constant(size)).result).result)
        flat = quotient
    return found
