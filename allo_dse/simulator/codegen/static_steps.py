"""Stream operations of a task body as a tree of steps, if they are known without running it.

They are known if loops have known counts, and branches around stream operations are decided by indices, by the numbers
of the task (its pids) and by constants. A loop whose body depends on its index is unrolled, up to a limit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Frozen

from .outline import site
from .signature import Body

LOOPS = ("affine.for", "scf.for")
TERMINATORS = ("affine.yield", "scf.yield", "scf.condition", "func.return", "scf.reduce")
MOST_STEPS = 4096
"""Steps of a body in which loops had to be unrolled."""
MOST_STEPS_OF_TASKS = 1 << 17
"""Steps of all tasks of a body together, where each has its own."""
_SIGNED = {0: operator.eq, 1: operator.ne, 2: operator.lt, 3: operator.le, 4: operator.gt, 5: operator.ge}
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.maxsi": max,
    "arith.minsi": min,
}
_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda left, right: -(-left // right),
    "arith.divsi": lambda left, right: _toward_zero(left, right),
    "arith.remsi": lambda left, right: left - right * _toward_zero(left, right),
}
_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")


class Move(Frozen):
    """A get or put.

    Attributes:
        parameter: position of the body's parameter that is the stream's number.
    """

    is_put: bool
    parameter: int


class Spend(Frozen):
    """The clock advances by the cycles of a cost site."""

    site: int


class Repeat(Frozen):
    """Steps done `count` times."""

    count: int
    steps: tuple[Step, ...]


Step = Move | Spend | Repeat


Steps = tuple[Step, ...]


class Unknown(Exception):
    """A body depends on something unknown."""


def static_steps(body: Body, tasks: Sequence[Mapping[int, int]] = ({},)) -> list[Steps] | None:
    """The steps of tasks with the same body; None if they depend on tokens or on elements of tensors.

    Args:
        tasks: per task the values of whole-number parameters, by their positions.
    """
    with text_context():
        try:
            module = ir.Module.parse(body.mlir)
        except ir.MLIRError as error:
            raise SimulationError(f"the task body {body.symbol!r} is not valid MLIR: {error}") from error
        for op in module.body.operations:
            if ir.StringAttr(op.operation.attributes["sym_name"]).value == body.symbol:
                return _steps_of(op.operation.regions[0].blocks[0], tasks)
    return None


def _steps_of(block: ir.Block, tasks: Sequence[Mapping[int, int]]) -> list[Steps] | None:
    parameters: dict[ir.Value, int] = {argument: i for i, argument in enumerate(block.arguments)}
    try:
        return [tuple(_Reader(parameters).block(block, {}))] * len(tasks)
    except Unknown:
        if not any(tasks):
            return None
    found: list[Steps] = []
    total = 0
    for numbers in tasks:
        known: dict[ir.Value, int] = {block.arguments[position]: value for position, value in numbers.items()}
        try:
            found.append(tuple(_Reader(parameters).block(block, known)))
        except Unknown:
            return None
        total += 1 + _size(found[-1])
        if total > MOST_STEPS_OF_TASKS:
            return None
    return found


def _size(steps: Steps) -> int:
    return sum(1 + (_size(step.steps) if isinstance(step, Repeat) else 0) for step in steps)


class _Reader:
    def __init__(self, parameters: Mapping[ir.Value, int]) -> None:
        self._parameters = parameters
        self._unrolled = 0

    def block(self, block: ir.Block, known: dict[ir.Value, int]) -> list[Step]:
        """The steps of a block; `known` are values of indices."""
        return [step for op in block.operations for step in self._operation(op.operation, known)]

    def _operation(self, op: ir.Operation, known: dict[ir.Value, int]) -> list[Step]:
        if op.name in ("df.get", "df.get_block", "df.put", "df.put_block"):
            if op.operands[0] not in self._parameters:
                raise Unknown
            return [Move(op.name.startswith("df.put"), self._parameters[op.operands[0]])]
        if op.name == "df.cost":
            return [Spend(site(op, "site"))]
        if op.name in TERMINATORS or not any(inner.name.startswith("df.") for inner in nested_ops(op)):
            return []
        if op.name in LOOPS:
            return self._loop(op, known)
        if op.name == "scf.if":
            taken = 0 if _value(op.operands[0], known) else 1
            blocks = list(op.regions[taken].blocks)
            return self.block(blocks[0], known) if blocks else []
        raise Unknown

    def _loop(self, op: ir.Operation, known: dict[ir.Value, int]) -> list[Step]:
        first, end, step = bounds(op, known)
        count = max(0, -(-(end - first) // step))
        body = op.regions[0].blocks[0]
        try:
            steps = self.block(body, dict(known))
        except Unknown:
            unrolled: list[Step] = []
            for value in range(first, first + count * step, step):
                more = self.block(body, {**known, body.arguments[0]: value})
                self._unrolled += 1 + len(more)
                if self._unrolled > MOST_STEPS:
                    raise Unknown from None
                unrolled += more
            return unrolled
        return [Repeat(count, tuple(steps))] if steps and count else []


def bounds(op: ir.Operation, known: dict[ir.Value, int]) -> tuple[int, int, int]:
    """First value, end and step of a loop."""
    if op.name == "scf.for":
        first, end, step = (_value(operand, known) for operand in list(op.operands)[:3])
        return first, end, step
    low, high = (ir.AffineMapAttr(op.attributes[name]).value for name in ("lowerBoundMap", "upperBoundMap"))
    operands = list(op.operands)
    first = max(_mapped(low, operands[: low.n_inputs], known))
    end = min(_mapped(high, operands[low.n_inputs : low.n_inputs + high.n_inputs], known))
    return first, end, site(op, "step")


def _mapped(mapping: ir.AffineMap, operands: list[ir.Value], known: dict[ir.Value, int]) -> list[int]:
    """The results of an affine map."""
    dims, symbols = mapping.n_dims, mapping.n_symbols
    for place, operand in enumerate(operands):
        own = ir.AffineDimExpr.get(place) if place < dims else ir.AffineSymbolExpr.get(place - dims)
        mapping = mapping.replace(own, ir.AffineConstantExpr.get(_value(operand, known)), dims, symbols)
    results = [one.value for one in mapping.results if isinstance(one, ir.AffineConstantExpr)]
    if len(results) < len(mapping.results):
        raise Unknown  # it divides by zero
    return results


def _value(value: ir.Value, known: dict[ir.Value, int]) -> int:
    """Return the value of an index or integer made of constants, known loop indices and numbers of tasks."""
    if value in known:
        return known[value]
    if isinstance(value, ir.BlockArgument):
        raise Unknown
    op = value.owner
    if op.name == "arith.constant" and not isinstance(value.type, ir.FloatType):
        return _constant(op)
    if op.name == "affine.apply":
        return _mapped(ir.AffineMapAttr(op.attributes["map"]).value, list(op.operands), known)[0]
    if op.name == "arith.select":
        return _value(op.operands[1 if _value(op.operands[0], known) else 2], known)
    if op.name == "scf.if":  # the operations of `and` and `or`
        block = op.regions[0 if _value(op.operands[0], known) else 1].blocks[0]
        number = [result == value for result in op.results].index(True)
        return _value(block.operations[-1].operands[number], known)
    return _wrapped(_computed(op, known), value.type)


def _computed(op: ir.Operation, known: dict[ir.Value, int]) -> int:
    """The result of an operation on numbers, before it is cut to the bits of its type."""
    if op.name in _CASTS:
        return _value(op.operands[0], known)
    if op.name == "arith.cmpi" and site(op, "predicate") in _SIGNED:
        compare = _SIGNED[site(op, "predicate")]
        return int(compare(*(_value(operand, known) for operand in op.operands)))
    if op.name not in _ARITHMETIC and op.name not in _DIVISIONS:
        raise Unknown
    left, right = (_value(operand, known) for operand in op.operands)
    if op.name in _ARITHMETIC:
        return _ARITHMETIC[op.name](left, right)
    if right == 0:
        raise Unknown
    return _DIVISIONS[op.name](left, right)


def _wrapped(number: int, of: ir.Type) -> int:
    """A number in the bits of a type; those of one bit are 0 and 1, others have a sign."""
    if not isinstance(of, ir.IntegerType):
        return number
    width = int(of.width)
    if width == 1:
        return number & 1
    return (number + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))


def _toward_zero(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _constant(op: ir.Operation) -> int:
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.BoolAttr):
        return int(ir.BoolAttr(attribute).value)
    return int(ir.IntegerAttr(attribute).value)
