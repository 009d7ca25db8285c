"""Which part of an array a loop's rounds use: the box of elements, and where it begins.

`Window.base` is what moves the box with the loop and those around it; `low` and `size` say which elements of it are
used, by all accesses together.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from allo_dse.ir.bindings import arith, ir
from allo_dse.ir.linear import Linear, LinearForms, Ranges, extent
from allo_dse.lang.diagnostics import ProgramError

from .body import Body, is_pure
from .reshape_loops import constant


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
    """Whether an operation is a loop or stands in it."""
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
    """Where a load or store is."""
    operands = list(op.operands)
    return operands[2:] if op.name == "memref.store" else operands[1:]


def windows(forms: IndexForms, ops: Sequence[ir.Operation], shape: Sequence[int], moving: set[int]) -> list[Window]:
    """What the accesses use along each dimension, where the variables in `moving` take all their values.

    A dimension along which that is not one box which moves as a whole is used from end to end.
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
