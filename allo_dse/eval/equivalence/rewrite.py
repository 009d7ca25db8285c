"""Rewriting task bodies so that data values are words of a domain (`domains.py`).

before:  %c = arith.muli %a, %b : i32                    after:  %c = call @mul(%w, %a, %b)
         memref.store %c, %C[%i] : memref<8xi32>                 memref.store %c, %C[%i] : memref<8xi64>

An integer of n bits stands for a polynomial of the inputs over the integers whose value modulo 2**n it is. So sums,
products and truncation are ring operations whatever their width, and so is extension when only the bits that were there
before matter afterwards, or when the value is known to fit. Any other extension, and any other operation, is a hash of
its name and its operands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from fractions import Fraction

from allo_dse.common.mlir.bindings import Operation, Value, arith, func, ir, memref, nested_ops, scf
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.mlir.jit import run_passes
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.codegen.stream_ops import constant_of, find

from ..execute.rounding import FLOAT_PREDICATES, replace_op
from .data_values import HINT, MEMORY, DataValues, Undecidable
from .domains import WORDS_TYPE, Code
from .path_comparison import NUMBER_BITS, PathDomain, as_bits, from_bits

# Integer extensions that change nothing: only the original bits count later, or the value fits.


Interval = tuple[int, int]
EXTENSIONS = ("arith.extsi", "arith.extui")
_SUMS = ("arith.addi", "arith.subi", "arith.muli")


def width_of(type_: ir.Type) -> int:
    return ir.IntegerType(type_).width


def range_of(width: int, *, signed: bool) -> Interval:
    """Return the values that an integer type holds; one bit is 0 or 1."""
    return (-(1 << width - 1), (1 << width - 1) - 1) if signed and width > 1 else (0, (1 << width) - 1)


class Widths:
    """Analysis of the integer widths in a body, whose field elements are `data`."""

    def __init__(self, data: Container[Value]) -> None:
        self._data = data
        self._needed: dict[Value, int] = {}
        self._intervals: dict[Value, Interval | None] = {}

    def changes_nothing(self, extension: Operation) -> bool:
        """Return whether the polynomial of an extended integer stands for the extension as well."""
        source, result = extension.operands[0], extension.results[0]
        return self.needed_bits(result) <= width_of(source.type) or self._fits(extension)

    def _fits(self, extension: Operation) -> bool:
        known = self.interval(extension.operands[0])
        low, high = range_of(width_of(extension.operands[0].type), signed=extension.name == "arith.extsi")
        return known is not None and low <= known[0] and known[1] <= high

    def needed_bits(self, value: Value) -> int:
        """Return the number of an integer's lowest bits that later operations need."""
        if value not in self._needed:
            self._needed[value] = max((self._needed_by(use) for use in value.uses), default=0)
        return self._needed[value]

    def _needed_by(self, use: ir.OpOperand) -> int:
        op, position = use.owner.operation, use.operand_number
        width = width_of(op.operands[position].type)
        passes_on = {"arith.shli": position == 0, "arith.select": position > 0}
        if passes_on.get(op.name, op.name in (*_SUMS, *EXTENSIONS, "arith.trunci")):
            return min(width, self.needed_bits(op.results[0]))
        return width

    def interval(self, value: Value) -> Interval | None:
        """Bounds of the polynomial itself, where they are known."""
        if value not in self._intervals:
            self._intervals[value] = self._interval(value)
        return self._intervals[value]

    def _interval(self, value: Value) -> Interval | None:
        if value not in self._data:
            known = constant_of(value)
            return range_of(width_of(value.type), signed=True) if known is None else (known, known)
        if isinstance(value, ir.BlockArgument):
            return None
        op = value.owner
        if op.name in EXTENSIONS:
            if self.changes_nothing(op):
                return self.interval(op.operands[0]) if self._fits(op) else None
            return range_of(width_of(op.operands[0].type), signed=op.name == "arith.extsi")
        if op.name not in _SUMS:
            return None
        a, b = (self.interval(operand) for operand in op.operands)
        return None if a is None or b is None else _combined(op.name, a, b)


def _combined(name: str, a: Interval, b: Interval) -> Interval:
    if name == "arith.addi":
        return a[0] + b[0], a[1] + b[1]
    if name == "arith.subi":
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


_WORD_BITS = 64

_RING = {"arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul"}
_REAL_RING = {"arith.addf": "add", "arith.subf": "sub", "arith.mulf": "mul"}
_COMMUTATIVE = frozenset(
    f"arith.{name}"
    for name in (
        "andi",
        "ori",
        "xori",
        "minsi",
        "maxsi",
        "minui",
        "maxui",
        "minimumf",
        "maximumf",
        "minnumf",
        "maxnumf",
    )
)
_SAME = ("arith.trunci", "arith.extf")
"""Operations that leave a field element as it is."""
_EQUALITIES = ("eq", "ne", "oeq", "une")
_PREDICATES = {
    "arith.cmpi": ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
    "arith.cmpf": FLOAT_PREDICATES,
}


def rewritten(classes: Iterable[TaskClass], domain: Code, *, allow_reassociation: bool) -> list[Body]:
    """The bodies of task classes over a domain; one more argument, the task's own words, follows their arrays.

    Raises:
        Undecidable: naming the place, where data decides on more than values.
    """
    with text_context():
        return [_rewritten(task_class, domain, allow_reassociation) for task_class in classes]


def _rewritten(task_class: TaskClass, domain: Code, allow_reassociation: bool) -> Body:
    module = ir.Module.parse(task_class.body.with_own_words(WORDS_TYPE))
    main = find(module, "func.func")[0]
    rewriter = _PathRewriter if isinstance(domain, PathDomain) else _Rewriter
    rewriter(main, task_class, domain, allow_reassociation).rewrite()
    for op in ir.Module.parse(domain.functions).body.operations:
        module.body.append(op.operation.clone())
    run_passes(module, "builtin.module(symbol-dce)")
    return Body(task_class.body.symbol, str(module))


class _Operand(Frozen):
    """An operand before the rewrite: whether it is data already, and its type."""

    is_data: bool
    type: ir.Type


class _Plan(Frozen):
    """The rewrite of an operation, decided before anything is rewritten.

    Attributes:
        places: per operand, whether data lies where it goes.
        result: the type of its only result, if that is data.
        is_kept: whether it is an extension that changes nothing.
    """

    op: Operation
    operands: list[_Operand]
    places: list[bool]
    result: ir.Type | None
    is_kept: bool


class _Rewriter:
    """Rewrites one function in place."""

    by_path = False

    def __init__(self, main: Operation, task_class: TaskClass, domain: Code, allow_reassociation: bool) -> None:
        self._main, self._domain, self._real_ring = main, domain, allow_reassociation
        self._words = next(a for a in main.regions[0].blocks[0].arguments if str(a.type) == WORDS_TYPE)
        self._word = ir.IntegerType.get_signless(64)
        self._known = DataValues(main, task_class, self._words, by_path=self.by_path)
        self._fixed: dict[tuple[int, bool], Value] = {}

    def rewrite(self) -> None:
        data, widths = self._known.data, Widths(self._known.data)
        plans = [self._planned(op, widths) for op in nested_ops(self._main) if op.name != "func.func"]
        for value in data:
            type_: ir.Type = self._word
            if isinstance(value.type, ir.MemRefType):
                array = ir.MemRefType(value.type)
                type_ = ir.MemRefType.get(array.shape, self._word, array.layout, array.memory_space)
            value.set_type(type_)
        for plan in plans:
            with plan.op.location, ir.InsertionPoint(plan.op):
                self._follow(plan)
        for branch in self._known.branches:
            self._choose(branch)
        for memory in find(self._main, *MEMORY):
            if memory.results[0] in data:
                self._leave_undefined(memory)
        inputs = [argument.type for argument in self._main.regions[0].blocks[0].arguments]
        self._main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))

    def _planned(self, op: Operation, widths: Widths) -> _Plan:
        data = self._known.data
        operands = [_Operand(value in data, value.type) for value in op.operands]
        places = [
            op.name == "df.put" or any(v in data for v in self._known.targets(op, k)) for k in range(len(operands))
        ]
        result = op.results[0].type if len(op.results) == 1 and op.results[0] in data else None
        is_kept = op.name in EXTENSIONS and result is not None and widths.changes_nothing(op)
        return _Plan(op, operands, places, result, is_kept)

    def _follow(self, plan: _Plan) -> None:
        op = plan.op
        if plan.is_kept:
            replace_op(op, op.operands[0])
        elif plan.result is not None and op.name.startswith(("arith.", "math.")):
            self._compute(op, plan.operands, plan.result)
        else:
            for k in _moved(op):
                if plan.places[k]:
                    op.operands[k] = self._lifted(op.operands[k], plan.operands[k])

    def _leave_undefined(self, memory: Operation) -> None:
        """Fill new memory with distinct unknown values."""
        array = memory.results[0]
        at: ir.InsertionPoint = ir.InsertionPoint.after(memory)  # type: ignore[attr-defined]  # newer than its stubs
        with memory.location, at:
            numbers = (0, 1, *ir.MemRefType(array.type).shape)
            zero, one, *sizes = (arith.ConstantOp(ir.IndexType.get(), number).result for number in numbers)
        name = ir.StringAttr(memory.attributes["df.name"]).value if "df.name" in memory.attributes else ""
        code = self._code(f"uninitialised {name}")
        index = []
        for size in sizes:
            with memory.location, at:
                loop = scf.ForOp(zero, size, one)
            with memory.location, ir.InsertionPoint(loop.body):
                last = scf.YieldOp([])
            at = ir.InsertionPoint(last)
            index.append(loop.induction_variable)
        with memory.location, at:
            memref.StoreOp(self._undefined(code), array, index)

    def _undefined(self, code: Value) -> Value:
        return self._call("undefined", code)

    # -- words -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Value) -> Value:
        callee = ir.FlatSymbolRefAttr.get(name)
        return func.CallOp([self._word], callee, [self._words, *arguments]).results[0]

    def _number(self, word: int, *, of_number: bool = False) -> Value:
        """A fixed word, at the top of the function; that of a number as what is computed has it."""
        key = word, of_number
        if key not in self._fixed:
            with ir.InsertionPoint.at_block_begin(self._main.regions[0].blocks[0]):
                fixed = arith.ConstantOp(self._word, ir.IntegerAttr.get(self._word, word)).result
                self._fixed[key] = self._call("constant", fixed) if of_number else fixed
        return self._fixed[key]

    def _constant(self, value: Fraction | float) -> Value:
        return self._number(self._domain.constant(value), of_number=True)

    def _code(self, name: str) -> Value:
        return self._number(self._domain.code(name))

    def _lifted(self, value: Value, operand: _Operand) -> Value:
        """Return a value as a word."""
        if operand.is_data:
            return value
        type_, known = operand.type, constant_of(value)
        if known is not None:
            return self._constant(Fraction(known))
        if isinstance(type_, ir.IntegerType):
            # Beyond 64 bits, by the values it is computed from.
            width = width_of(value.type)
            if width <= _WORD_BITS:
                extend = arith.ExtUIOp if width == 1 else arith.ExtSIOp
                return self._call("integer", value if width == _WORD_BITS else extend(self._word, value).result)
            op = None if isinstance(value, ir.BlockArgument) else value.owner
            if op is not None and op.name in (*_RING, "arith.extsi", "arith.trunci"):
                words = [self._lifted(operand, _Operand(False, operand.type)) for operand in op.operands]
                return self._call(_RING[op.name], *words) if op.name in _RING else words[0]
            if op is not None and op.name == "arith.extui" and width_of(op.operands[0].type) < _WORD_BITS:
                return self._call("integer", arith.ExtUIOp(self._word, op.operands[0]).result)
            if op is not None and op.name == "arith.index_cast":
                return self._call("integer", arith.IndexCastOp(self._word, op.operands[0]).result)
            raise Undecidable(f"integers of {width} bits are computed from what is not data", hint=HINT)
        if not isinstance(value, ir.BlockArgument) and value.owner.name == "arith.constant":
            return self._constant(ir.FloatAttr(value.owner.attributes["value"]).value)
        double = ir.F64Type.get()
        return self._call("real", value if type_ == double else arith.ExtFOp(double, value).result)

    # -- operations --------------------------------------------------------------------------------------------------

    def _compute(self, op: Operation, before: list[_Operand], target: ir.Type) -> None:
        """Replace an operation on data by a word."""
        if op.name == "arith.select" and not before[0].is_data:
            for k in (1, 2):
                op.operands[k] = self._lifted(op.operands[k], before[k])
            return
        if any(isinstance(o.type, ir.IndexType) for o in before):
            raise Undecidable(f"{op.name} has no formula", hint=HINT)
        words = [self._lifted(value, operand) for value, operand in zip(op.operands, before, strict=True)]
        replace_op(op, self._formula(op, words, before[0].type, target))

    def _formula(self, op: Operation, words: list[Value], source: ir.Type, target: ir.Type) -> Value:
        name = op.name
        ring = _RING.get(name) or (_REAL_RING.get(name) if self._real_ring else None)
        if ring is not None:
            return self._call(ring, *words)
        if name in _SAME:
            return words[0]
        if name == "arith.select":
            return self._call("choose", *words)
        if name == "arith.shli" and (places := constant_of(op.operands[1])) is not None:
            return self._call("mul", words[0], self._constant(Fraction(1 << places)))
        if name in EXTENSIONS:
            return self._call("apply1", self._code(f"{name} {source}"), words[0])
        if name in ("arith.subf", "arith.negf"):
            negative = self._call("sub", self._number(0), words[-1])
            return (
                negative
                if name == "arith.negf"
                else self._call("sum", self._code(f"arith.addf {target}"), words[0], negative)
            )
        if name in ("arith.addf", "arith.mulf"):
            return self._call(
                {"arith.addf": "sum", "arith.mulf": "product"}[name], self._code(f"{name} {target}"), *words
            )
        if name == "arith.divf" and self._real_ring:
            return self._call("mul", words[0], self._call("apply1", self._code("reciprocal"), words[1]))
        # A hash of the operation's name, types and operands.
        commutes = name in _COMMUTATIVE
        if name in _PREDICATES:
            predicate = _PREDICATES[name][ir.IntegerAttr(op.attributes["predicate"]).value]
            if predicate[-2] == "g":  # a > b is b < a
                predicate, words = f"{predicate[:-2]}l{predicate[-1]}", words[::-1]
            name, commutes = f"{name} {predicate}", predicate in _EQUALITIES
        code = self._code(f"{name} {source} {target}")
        return self._call("commutative" if commutes else f"apply{len(words)}", code, *words)

    # -- branches ----------------------------------------------------------------------------------------------------

    def _choose(self, branch: Operation) -> None:
        """Run both sides of a branch on data, one after the other; each value they write becomes a choice."""
        condition = branch.operands[0]
        sides = [block for region in branch.regions for block in region.blocks]
        joined = self._join_stores(condition, *sides) if len(sides) > 1 else []
        for k, block in enumerate(sides):
            for store in _stores(block):
                if store in joined:
                    continue
                with store.location, ir.InsertionPoint(store):
                    old, new = memref.LoadOp(store.operands[1], list(store.operands)[2:]).result, store.operands[0]
                    store.operands[0] = self._call("choose", condition, *((new, old) if k == 0 else (old, new)))
        yields = [list(block.operations)[-1].operation for block in sides]
        with branch.location, ir.InsertionPoint(branch):
            for block in sides:
                for op in list(block.operations)[:-1]:
                    op.operation.move_before(branch)
            for result, *values in zip(branch.results, *(op.operands for op in yields), strict=True):
                result.replace_all_uses_with(self._call("choose", condition, *values))
        branch.erase()

    def _join_stores(self, condition: Value, first: ir.Block, second: ir.Block) -> list[Operation]:
        """One store of what both sides write to an element, so that it is a choice of two values; returns these stores.

        before: if c { A[i] = x } else { A[i] = y }         after: A[i] = choose(c, x, y)
        """
        joined = []
        for last in _stores(first):
            place = list(last.operands)[1:]
            then = [op for op in _accesses(first, place[0]) if op != last]
            other = next(iter(_accesses(second, place[0])), None)
            is_last = last.block == first and not any(last.is_before_in_block(op) for op in then if op.block == first)
            is_whole = isinstance(place[0], ir.BlockArgument) or place[0].owner.name in MEMORY
            if other is None or other.block != second or other.name != "memref.store" or not is_last:
                continue
            if list(other.operands)[1:] == place and not any(op.block != first for op in then) and is_whole:
                with other.location, ir.InsertionPoint(other):
                    other.operands[0] = self._call("choose", condition, last.operands[0], other.operands[0])
                last.erase()
                joined.append(other)
        return joined


class _PathRewriter(_Rewriter):
    """Rewriter whose words are numbers of entries with a formula and a number; numbers decide (see `by_path`)."""

    by_path = True

    def _follow(self, plan: _Plan) -> None:
        op = plan.op
        if plan.result is not None and op.name.startswith(("arith.", "math.")):
            self._compute_both(plan, plan.result)
            return
        moved = _moved(op)
        for k, operand in enumerate(plan.operands):
            if k in moved and plan.places[k]:
                op.operands[k] = self._entered(op.operands[k], operand)
            elif operand.is_data and not isinstance(operand.type, ir.MemRefType) and k not in moved:
                op.operands[k] = self._decided(self._call("deciding", op.operands[k]), operand)

    def _undefined(self, code: Value) -> Value:
        number = arith.ConstantOp(ir.IntegerType.get_signless(NUMBER_BITS), 0).result
        return self._call("mark_undefined", self._call("entry", self._call("undefined", code), number))

    def _entered(self, value: Value, operand: _Operand) -> Value:
        return value if operand.is_data else self._call("entry", self._lifted(value, operand), as_bits(value))

    def _decided(self, value: Value, operand: _Operand) -> Value:
        """The number of a value."""
        if not operand.is_data:
            return value
        type_, callee = ir.IntegerType.get_signless(NUMBER_BITS), ir.FlatSymbolRefAttr.get("number")
        return from_bits(func.CallOp([type_], callee, [self._words, value]).results[0], operand.type)

    def _compute_both(self, plan: _Plan, target: ir.Type) -> None:
        """Compute the formula of a result, and beside it the operation itself on numbers."""
        op, before = plan.op, plan.operands
        own = list(op.operands)
        if op.name == "arith.select":
            condition = self._call("deciding", own[0]) if before[0].is_data else own[0]
            op.operands[0] = self._decided(condition, before[0])
            for k in (1, 2):
                op.operands[k] = self._entered(own[k], before[k])
            return
        if any(isinstance(o.type, ir.IndexType) for o in before):
            raise Undecidable(f"{op.name} has no formula", hint=HINT)
        numbers = [self._decided(value, operand) for value, operand in zip(own, before, strict=True)]
        on_numbers = op.clone()
        on_numbers.results[0].set_type(target)
        for k, number in enumerate(numbers):
            on_numbers.operands[k] = number
        formulas = [
            self._call("formula", value) if operand.is_data else self._lifted(value, operand)
            for value, operand in zip(own, before, strict=True)
        ]
        formula = formulas[0] if plan.is_kept else self._formula(op, formulas, before[0].type, target)
        entry = self._call("entry", formula, as_bits(on_numbers.results[0]))
        for value, operand in zip(own, before, strict=True):
            entry = self._call("computed_from", entry, value) if operand.is_data else entry
        replace_op(op, entry)


def _stores(block: ir.Block) -> list[Operation]:
    return [found for op in block.operations for found in find(op, "memref.store")]


def _accesses(block: ir.Block, array: Value) -> list[Operation]:
    """The operations in a block, and within its operations, that name an array."""
    inside = [found for op in block.operations for found in nested_ops(op)]
    return [op for op in inside if any(operand == array for operand in op.operands)]


def _moved(op: Operation) -> range:
    """Positions of the operands that an operation moves elsewhere as they are."""
    if op.name == "df.put":
        return range(1, 2)
    if op.name == "memref.store":
        return range(1)
    if op.name == "scf.for":
        return range(3, len(op.operands))
    if op.name == "scf.condition":
        return range(1, len(op.operands))
    return range(len(op.operands)) if op.name in ("scf.yield", "scf.while", "affine.yield") else range(0)
