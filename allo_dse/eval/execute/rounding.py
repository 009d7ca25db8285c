"""Running error analysis: one run of a program that gives its results, their exact values and bounds of the difference.

Every floating-point value becomes five doubles: the value as the program rounds it; the value in float64 without these
roundings; a worst-case bound and a variance of the difference; and the bound for operations of unit roundoff 1, from
which that of another computation of the same function follows (a reference in float32).
An operation z = f(x) that rounds to a type of unit roundoff u has

    bound(z) = sum |df/dx| bound(x) + u |z|                variance(z) = sum (df/dx)**2 variance(x) + (u z)**2

The bounds are those of N. Higham, Accuracy and Stability of Numerical Algorithms (2nd ed., 2002), section 3.3; the
variance is that of independent roundings (N. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, theorem 2.4). Both are
of first order: derivatives are exact for sums, products and quotients, and differences over one bound elsewhere.

Integers, indices and branches are those of the rounded values. Decisions that exact values would take otherwise are
counted; an `arith.select` chooses for each of the two values by its own comparison. If there are such decisions, a
second run takes those of the exact values. It counts decisions that roundings of a float32 reference may change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache, partial, partialmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.mlir.bindings import Operation, Value, arith, func, ir, memref, nested_ops
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Frozen, once
from allo_dse.compiler.model.arguments import Arguments
from allo_dse.compiler.program.compiled import CompiledProgram, ExternalCall, TaskClass
from allo_dse.lang.externals import External
from allo_dse.lang.storage import numpy_dtype, storage_dtype
from allo_dse.lang.types import DType, bfloat16, float16, float32
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.codegen.stream_ops import find
from allo_dse.simulator.engine.engine import Engine, compile_bodies

from .run import Externals, Run, apply_meaning, compile_places, initial_state, wiring_of

Array = NDArray[np.generic]
Doubles = NDArray[np.float64]

DEVIATIONS = 6.0
"""Standard deviations that all but one of 10**7 results stay within, if roundings are independent (Hoeffding:
2 exp(-DEVIATIONS**2 / 2); roundings are uniform rather than at their bounds, which leaves more room)."""
ROOM = 3.0
"""Factor on the largest observed error over its standard deviation, for another order of the same operations."""
_ALIKE = 1.5
"""The same where that error exceeds `DEVIATIONS`: roundings in one direction, as in a sum that stagnates."""
SINGLE = 2.0**-24
"""Unit roundoff of float32: references compute in it unless they say otherwise."""

_FIELDS = ("rounded", "exact", "bound", "variance", "unit")
_RECORD = np.dtype({"names": _FIELDS, "formats": ["f8"] * 5, "itemsize": 48})
_WORD = "i320"
_OWN = "memref<2xi64, strided<[?], offset: ?>>"
_MANTISSA_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_LEAST = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150, "f64": 5e-324}
"""Half the distance between subnormal numbers."""
_LIBRARY = 4.0
"""Error of a library function over the roundoff: two units in the last place, as of `tanhf` and `log10f` (The GNU C
Library manual, Errors in Math Functions)."""
_KEPT_ENGINES = 64
_MOST_ELEMENTS_KEPT = 1 << 16
"""Tensor elements of an analysis that is kept: at most 6 MB."""


class Analysed(Frozen):
    """A tensor after a run, element by element.

    Attributes:
        rounded: the program's values.
        exact: the values of the same operations without rounding.
        bound: worst-case bound of the difference.
        variance: variance of the difference, for independent roundings.
        unit: bound of the difference over the unit roundoff, for operations that all round alike.
    """

    rounded: Array
    exact: Doubles
    bound: Doubles
    variance: Doubles
    unit: Doubles

    @property
    def error(self) -> Doubles:
        """The roundings of this run."""
        with np.errstate(invalid="ignore"):
            same = (self.rounded == self.exact) | (np.isnan(self.rounded) & np.isnan(self.exact))
            off: Doubles = np.where(same, 0.0, np.abs(self.rounded.astype(np.float64) - self.exact))
            return off

    @property
    def tolerance(self) -> Doubles:
        """Largest allowed distance of another implementation in the same types from the exact result.

        It is the worst case, or less: a number of standard deviations. That number is `ROOM` times the largest of this
        run, but at most `DEVIATIONS` if this run stays within them.
        """
        deviation = np.sqrt(self.variance)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = self.error / deviation
            seen = shares[np.isfinite(shares)].max(initial=0.0)
            limit = max(min(DEVIATIONS, ROOM * seen), _ALIKE * seen if seen > DEVIATIONS else 0.0)
            found: Doubles = np.fmin(self.bound, limit * deviation)
            return found


class Analysis(Frozen):
    """The analysed tensors of a run.

    Attributes:
        tensors: the program's floating-point tensors by name.
        integers: its other tensors.
        undecided: number of comparisons and conversions to integers with another result than for exact values; in a
            run that decides by exact values, than a reference in float32 may have.
        decided: a run that decides by exact values; itself where these decide alike.
    """

    tensors: Mapping[str, Analysed]
    integers: Mapping[str, Array]
    undecided: int
    own_decided: Analysis | None = None

    @property
    def decided(self) -> Analysis:
        return self.own_decided or self

    def result(self, name: str) -> Analysed:
        """Return a tensor whose exact values are those of exact decisions; other decisions count as errors."""
        tensors, decided = self.tensors, self.decided
        one = tensors[name] if name in tensors else exactly(self.integers[name])
        other = decided.tensors[name] if name in tensors else exactly(decided.integers[name])
        with np.errstate(invalid="ignore"):
            moved = np.nan_to_num(np.abs(one.exact - other.exact))
        return Analysed(one.rounded, other.exact, one.bound + moved, one.variance + moved**2, other.unit)


_ANALYSES: dict[tuple[object, ...], Analysis] = {}
"""Analyses by program, since folds do not change them, and by the contents of its tensors."""


def exactly(array: Array) -> Analysed:
    """Return values without errors."""
    nothing = np.zeros(array.shape)
    return Analysed(array, array.astype(np.float64), nothing, nothing, nothing)


def unit_roundoff(dtype: DType) -> float:
    """Return the unit roundoff of a floating-point type: the largest relative error of rounding to nearest."""
    return _unit(_element(dtype))


def unit_of(values: Array) -> float:
    """Return the unit roundoff of the narrowest type that holds all of some floats."""
    wide = np.asarray(values).astype(np.float64)
    for dtype in (bfloat16, float16, float32):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.array_equal(wide.astype(numpy_dtype(dtype)).astype(np.float64), wide, equal_nan=True):
                return unit_roundoff(dtype)
    return 2.0**-53


def has_floats(program: CompiledProgram) -> bool:
    """Return whether a program computes with floating-point numbers, and so may round."""
    return any(name in c.body.mlir for c in program.task_classes for name in _MANTISSA_BITS)


def analysed(
    vmg: VMG,
    arrays: Mapping[str, Array],
    *,
    depths: Mapping[str, int],
    seconds: float | None,
    before: Mapping[str, Analysed] | None = None,
) -> Analysis:
    """Run a graph on the tensors it has, which stay as they are.

    Args:
        before: results of earlier computations, by the tensors that have their rounded values.

    Raises:
        SimulationError, DeadlockError: as `run_graph`.
    """
    made = partial(_analysis, vmg, arrays, depths, seconds, before or {})
    if before or sum(array.size for array in arrays.values()) > _MOST_ELEMENTS_KEPT:
        return made()
    return once(_ANALYSES, (vmg.program, *(array.tobytes() for array in arrays.values())), made, _KEPT_ENGINES)


def _analysis(
    vmg: VMG,
    arrays: Mapping[str, Array],
    depths: Mapping[str, int],
    seconds: float | None,
    before: Mapping[str, Analysed],
    *,
    by_exact: bool = False,
) -> Analysis:
    """Run a graph, whose decisions are those of rounded or of exact values; then also of exact ones if they differ."""
    program = vmg.program
    own = Arguments(program, [array.copy() for array in arrays.values()]).by_name
    types = {one.tensor.name: one.tensor.dtype for one in program.shared}
    types |= {tensor.name: tensor.dtype for tensor in program.tensors}
    state = initial_state(program)
    counts = []
    for kernel in program.kernels:
        for count, task_class in zip(kernel.class_sizes, kernel.classes, strict=True):
            variables = state.variables[kernel.name, task_class.name]
            for k, variable in enumerate(task_class.state):
                variables[k] = _records(variables[k], variable.dtype)
            variables.append(np.full((count, 2), [0, by_exact], np.int64))
            counts.append(variables[-1][:, 0])
    tensors = {name: _records(array, types[name]) for name, array in (own | state.shared).items()}
    for name, one in before.items():
        if types[name].is_float:
            _follow(tensors[name], one)
    externals = Externals(program, lambda dtype: _RECORD if dtype.is_float else storage_dtype(dtype), _apply_external)
    with compile_places(program):
        Run(vmg, _engine(program), tensors, wiring_of(vmg, depths), state, externals).finish(seconds)
    found = {
        tensor.name: _analysed(tensors[tensor.name], tensor.dtype)
        for tensor in program.tensors
        if tensor.dtype.is_float
    }
    integers = {tensor.name: tensors[tensor.name] for tensor in program.tensors if not tensor.dtype.is_float}
    undecided, decided = sum(int(one.sum()) for one in counts), None
    if undecided and not by_exact:
        decided = _analysis(vmg, arrays, depths, seconds, before, by_exact=True)
    return Analysis(found, integers, undecided, decided)


def _records(array: Array, dtype: DType) -> NDArray[Any]:
    """Return records of exact values."""
    if not dtype.is_float:
        return array
    found = np.zeros(array.shape, _RECORD)
    found["rounded"] = found["exact"] = array.astype(np.float64)
    return found


def _follow(records: NDArray[Any], before: Analysed) -> None:
    """Set the errors of elements: those before, and that of rounding to the type of the tensor."""
    for name in _FIELDS[1:]:
        records[name] = getattr(before, name).reshape(records.shape)
    with np.errstate(invalid="ignore"):
        off = np.abs(records["rounded"] - before.rounded.astype(np.float64).reshape(records.shape))
    off = np.nan_to_num(off, nan=0.0, posinf=0.0)
    records["bound"] += off
    records["variance"] += off**2


def _analysed(records: NDArray[Any], dtype: DType) -> Analysed:
    rounded, *others = (np.ascontiguousarray(records[name]) for name in _FIELDS)
    exact, *bounds = others
    with np.errstate(over="ignore", invalid="ignore"):
        return Analysed(
            rounded.astype(numpy_dtype(dtype)), exact, *(np.where(np.isnan(one), np.inf, one) for one in bounds)
        )


def _apply_external(known: External, call: ExternalCall, arrays: list[NDArray[Any]]) -> None:
    """Apply a vendor kernel to the rounded and to the exact values.

    Its own roundings are unknown. They are assumed to be as large as the root mean square difference of the results.
    """
    types = [dtype for dtype, _ in call.operands]
    rounded = [
        one["rounded"].astype(numpy_dtype(dtype)) if dtype.is_float else one
        for one, dtype in zip(arrays, types, strict=True)
    ]
    exact = [one["exact"].copy() if dtype.is_float else one.copy() for one, dtype in zip(arrays, types, strict=True)]
    apply_meaning(known, call, rounded)
    apply_meaning(known, call, exact)
    for position in call.outputs:
        if types[position].is_float:
            one = arrays[position]
            one["rounded"], one["exact"] = rounded[position].astype(np.float64), exact[position]
            off = np.abs(one["rounded"] - one["exact"])
            off += np.sqrt(np.mean(off**2)) + _unit(_element(types[position])) * np.abs(one["exact"])
            one["bound"], one["variance"], one["unit"] = off, off**2, np.abs(one["exact"])


@lru_cache(_KEPT_ENGINES)
def _engine(program: CompiledProgram) -> Engine:
    with text_context():
        bodies = [_rewritten(task_class) for task_class in program.task_classes]
    return compile_bodies(bodies, elements=program.elements_computed)


def _rewritten(task_class: TaskClass) -> Body:
    text = task_class.body.with_own_words(_OWN)
    # Attributes of constants keep all digits of the source.
    text = re.sub(r"arith\.constant (\S+) : (bf16|f16|f32)\b", _with_digits, text)
    module = ir.Module.parse(text)
    rewriter = _FloatWidener(module, task_class.body.symbol)
    rewriter.rewrite()
    for op in ir.Module.parse("".join(rewriter.helpers.values())).body.operations:
        module.body.append(op.operation.clone())
    return Body(task_class.body.symbol, str(module))


def _with_digits(found: re.Match[str]) -> str:
    try:
        value = float(found[1])
    except ValueError:  # bits of infinities
        return found[0]
    return f"arith.constant {{df.exact = {value!r} : f64}} {found[1]} : {found[2]}" if "." in repr(value) else found[0]


class _FloatWidener:
    """Gives the floats of a module five doubles each.

    Attributes:
        helpers: the texts of the functions that compute with them, by name.
    """

    def __init__(self, module: ir.Module, symbol: str) -> None:
        self._module = module
        self.helpers: dict[str, str] = {}
        self._word = ir.Type.parse(_WORD)
        main = next(f for f in find(module, "func.func") if _name(f) == symbol)
        self._own = next(a for a in main.regions[0].blocks[0].arguments if str(a.type) == _OWN)
        self._constant_arrays: set[Value] = set()

    def rewrite(self) -> None:
        ops = [op for op in nested_ops(self._module) if op.name not in ("builtin.module", "memref.global")]
        for op in ops:
            is_constant = op.name == "memref.get_global" or (
                op.name.startswith("memref.") and any(o in self._constant_arrays for o in op.operands)
            )
            if is_constant:
                self._constant_arrays.update(r for r in op.results if isinstance(r.type, ir.MemRefType))
        plans = [(op, [o.type for o in op.operands], [r.type for r in op.results]) for op in ops]
        for op in ops:
            for value in [
                *op.results,
                *(a for region in op.regions for block in region.blocks for a in block.arguments),
            ]:
                if value not in self._constant_arrays:
                    value.set_type(self._type(value.type))
        for op, before, results in plans:
            with op.location, ir.InsertionPoint(op):
                self._follow(op, before, results)
        for function in find(self._module, "func.func"):
            if not function.regions[0].blocks:
                continue
            inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
            old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
            new = ir.FunctionType.get(inputs, [self._type(one) for one in old.results])
            function.attributes["function_type"] = ir.TypeAttr.get(new)

    def _type(self, type_: ir.Type) -> ir.Type:
        if isinstance(type_, ir.FloatType):
            return self._word
        if isinstance(type_, ir.MemRefType):
            array = ir.MemRefType(type_)
            if isinstance(array.element_type, ir.FloatType):
                return ir.MemRefType.get(array.shape, self._word, array.layout, array.memory_space)
        return type_

    def _follow(self, op: Operation, before: list[ir.Type], results: list[ir.Type]) -> None:
        name = op.name
        if name == "arith.constant":
            if isinstance(results[0], ir.FloatType):
                self._constant(op, results[0])
        elif name == "memref.load" and op.operands[0] in self._constant_arrays:
            if isinstance(results[0], ir.FloatType):
                # An element of a constant array: of the digits that the source has, those of its type are left.
                op.results[0].set_type(results[0])
                with ir.InsertionPoint(op):
                    copy = op.clone()
                function = f"df_lift_{results[0]}"
                if function not in self.helpers:
                    self.helpers[function] = _Helper(function, [str(results[0])]).lift(str(results[0]))
                replace_op(op, self._call(function, [self._word], copy.results[0])[0])
        elif name == "arith.select":
            self._select(op, before)
        elif name.startswith(("arith.", "math.")) and any(isinstance(t, ir.FloatType) for t in [*before, *results]):
            self._compute(op, before, results[0])

    def _call(self, name: str, types: list[ir.Type], *arguments: Value) -> list[Value]:
        return list(func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(arguments)).results)

    def _constant(self, op: Operation, type_: ir.Type) -> None:
        rounded = ir.FloatAttr(op.attributes["value"]).value
        exact = ir.FloatAttr(op.attributes["df.exact"]).value if "df.exact" in op.attributes else rounded
        difference = abs(exact - rounded) if exact != rounded else 0.0
        word = np.array([rounded, exact, difference, difference**2, 0.0]).view(np.uint64)
        number = sum(int(part) << (64 * k) for k, part in enumerate(word))
        attribute = ir.Attribute.parse(f"{number - (1 << 320) if number >> 319 else number} : {_WORD}")
        replace_op(op, arith.ConstantOp(self._word, attribute).result)

    def _select(self, op: Operation, before: list[ir.Type]) -> None:
        if not isinstance(before[1], ir.FloatType):
            return
        decides = exact = op.operands[0]
        if not isinstance(decides, ir.BlockArgument) and decides.owner.name == "func.call":
            results = decides.owner.results
            exact = results[1] if len(results) == _COMPARED else decides
        if "df_select" not in self.helpers:
            self.helpers["df_select"] = _Helper("df_select", ["i1", "i1", _WORD, _WORD]).select()
        replace_op(op, self._call("df_select", [self._word], decides, exact, op.operands[1], op.operands[2])[0])

    def _compute(self, op: Operation, before: list[ir.Type], result: ir.Type) -> None:
        if op.name == "arith.extf":
            replace_op(op, op.operands[0])
            return
        short = op.name.partition(".")[2]
        predicate = ""
        if op.name == "arith.cmpf":
            predicate = FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
        types = [str(one) for one in before]
        name = "_".join(["df", short, *filter(None, [predicate]), *types, str(result)])
        if name not in self.helpers:
            arguments = [_WORD if t in _MANTISSA_BITS else t for t in types]
            arguments += [] if isinstance(result, ir.FloatType) else ["i1"]
            self.helpers[name] = _Helper(name, arguments).operation(op.name, predicate, types, str(result))
        i1 = ir.IntegerType.get_signless(1)
        if op.name == "arith.cmpf":
            holds, _, differs = self._call(name, [i1, i1, i1], *op.operands, self._by_exact())
            if any(use.owner.name != "arith.select" or use.operand_number for use in op.results[0].uses):
                self._count(differs)
            replace_op(op, holds)
        elif isinstance(result, ir.FloatType):
            replace_op(op, self._call(name, [self._word], *op.operands)[0])
        else:
            number, differs = self._call(name, [result, i1], *op.operands, self._by_exact())
            self._count(differs)
            replace_op(op, number)

    def _by_exact(self) -> Value:
        """Return the flag of runs that decide with exact values."""
        own = memref.LoadOp(self._own, [_index(1)]).result
        return arith.TruncIOp(ir.IntegerType.get_signless(1), own).result

    def _count(self, holds: Value) -> None:
        zero = _index(0)
        old = memref.LoadOp(self._own, [zero]).result
        one = arith.ExtUIOp(ir.IntegerType.get_signless(64), holds).result
        memref.StoreOp(arith.AddIOp(old, one).result, self._own, [zero])


def replace_op(op: Operation, value: Value) -> None:
    """Put a value in the place of an operation's result."""
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _index(value: int) -> Value:
    return arith.ConstantOp(ir.IndexType.get(), ir.IntegerAttr.get(ir.IndexType.get(), value)).result


def _name(function: Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


FLOAT_PREDICATES = (
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
)
"""Comparisons of floats, by their number in MLIR."""
_MOVES = ("arith.negf", "math.absf")
_COMPARED = 3
"""Results of a comparison: the decision, that of exact values, and whether it is undecided."""
_EXTREMES = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
_TO_INTEGER = ("arith.fptosi", "arith.fptoui")


class _Double(Frozen, eq=False):
    """A double in the text of a function; operators write operations on it."""

    helper: _Helper
    name: str

    def __str__(self) -> str:
        return self.name

    def _combined(self, op: str, other: _Double) -> _Double:
        return self.helper.double(f"{op} {self}, {other}")

    __add__ = partialmethod(_combined, "arith.addf")
    __sub__ = partialmethod(_combined, "arith.subf")
    __mul__ = partialmethod(_combined, "arith.mulf")
    __truediv__ = partialmethod(_combined, "arith.divf")

    def __abs__(self) -> _Double:
        return self.helper.double(f"math.absf {self}")


class _Helper:
    """Writes the text of one function on records, in `func` and `arith`."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self._name, self._arguments = name, arguments
        self._lines: list[str] = []
        self._constants: dict[tuple[str, str], str] = {}

    # -- operations on records -------------------------------------------------------------------------------------

    def operation(self, op: str, predicate: str, types: list[str], result: str) -> str:
        """An operation of a body."""
        records = [self._record(k) if t in _MANTISSA_BITS else [] for k, t in enumerate(types)]
        own = [
            self._narrow(str(record[0]), t) if record else f"%a{k}"
            for k, (record, t) in enumerate(zip(records, types, strict=True))
        ]
        by_exact = f"arith.select %a{len(self._arguments) - 1},"  # the last argument says what this run decides by
        if op == "arith.cmpf":
            a, b = records
            rounded = self._do(f"arith.cmpf {predicate}, {', '.join(own)} : {types[0]}")
            exact = self._do(f"arith.cmpf {predicate}, {a[1]}, {b[1]} : f64")
            # A value equals itself in every computation, as a running maximum that does not change.
            near = (a[4] + b[4]) * self._number(SINGLE)
            is_near = self._do(f"arith.cmpf olt, {abs(a[1] - b[1])}, {near} : f64")
            is_near = self._do(f"arith.andi {is_near}, {self._do(f'arith.cmpi ne, %a0, %a1 : {_WORD}')} : i1")
            differs = self._do(f"arith.xori {rounded}, {exact} : i1")
            found = self._do(f"{by_exact} {exact}, {rounded} : i1")
            return self._end([found, exact, self._do(f"{by_exact} {is_near}, {differs} : i1")], ["i1"] * _COMPARED)
        if op in _TO_INTEGER:
            w, off = records[0][1], records[0][4] * self._number(SINGLE)
            rounded = self._do(f"{op} {own[0]} : {types[0]} to {result}")
            exact, low, high = (self._do(f"{op} {value} : f64 to {result}") for value in (w, w - off, w + off))
            is_near = self._do(f"arith.cmpi ne, {low}, {high} : {result}")
            differs = self._do(f"arith.cmpi ne, {rounded}, {exact} : {result}")
            found = self._do(f"{by_exact} {exact}, {rounded} : {result}")
            return self._end([found, self._do(f"{by_exact} {is_near}, {differs} : i1")], [result, "i1"])
        if result not in _MANTISSA_BITS:
            differs = self._do(f"arith.cmpf une, {records[0][0]}, {records[0][1]} : f64")
            return self._end([self._do(f"{op} {own[0]} : {types[0]} to {result}"), differs], [result, "i1"])
        if op in ("arith.sitofp", "arith.uitofp", "arith.bitcast"):
            n = self._widened(self._do(f"{op} {own[0]} : {types[0]} to {result}"), result)
            w = n if op == "arith.bitcast" else self.double(f"{op} {own[0]} : {types[0]} to f64", "")
            off = self._number(0.0) if w is n else abs(n - w)
            return self._record_of(n, w, off, off * off, self._number(0.0))
        assert all(records)
        if op == "arith.truncf":
            n, w, terms = self._widened(self._narrow(own[0], result, types[0]), result), records[0][1], records[0][2:]
        else:
            n = self._widened(self._do(f"{op} {', '.join(own)} : {types[0]}"), result)
            w = self.double(f"{op} {', '.join(str(record[1]) for record in records)}")
            terms = self._propagated(op, records, w)
        if op in (*_MOVES, *_EXTREMES):
            return self._record_of(n, w, *terms)
        is_library = op.startswith("math.") and op != "math.sqrt"
        return self._rounded(n, w, terms, result, _LIBRARY if is_library else 1.0)

    def lift(self, type_: str) -> str:
        """A number without known bounds beyond those of its type."""
        n = self._widened("%a0", type_)
        off = abs(n) * self._number(_unit(type_))
        return self._record_of(n, n, off, off * off, off * self._number(1 / min(SINGLE, _unit(type_))))

    def select(self) -> str:
        """Each of the two values by its own comparison; where these differ, so do the values."""
        a, b = self._record(2), self._record(3)
        n = self.double(f"arith.select %a0, {a[0]}, {b[0]}")
        w, e, v, u = (self.double(f"arith.select %a1, {x}, {y}") for x, y in zip(a[1:], b[1:], strict=True))
        differs = self._do("arith.xori %a0, %a1 : i1")
        off = self.double(f"arith.select {differs}, {abs(a[1] - b[1])}, {self._number(0.0)}")
        return self._record_of(n, w, e + off, v + off * off, u)

    def _propagated(self, op: str, known: list[list[_Double]], w: _Double) -> list[_Double]:
        """Bound, variance and unit bound of a result, without its own rounding."""
        if op in _MOVES:
            return known[0][2:]
        zero = self._number(0.0)
        if op in _EXTREMES:
            return [self.double(f"arith.maximumf {x}, {y}") for x, y in zip(known[0][2:], known[1][2:], strict=True)]
        if op in ("arith.addf", "arith.subf"):
            found = [x + y for x, y in zip(known[0][2:], known[1][2:], strict=True)]
            if op == "arith.addf":
                return found
            # A value minus itself is zero despite rounding, as for a running maximum that does not change.
            same = self._do(f"arith.cmpi eq, %a0, %a1 : {_WORD}")
            return [self.double(f"arith.select {same}, {zero}, {one}") for one in found]
        if op == "arith.mulf":
            (_, wa, ea, va, ua), (_, wb, eb, vb, ub) = known
            x, y = abs(wa), abs(wb)
            return [x * eb + y * ea + ea * eb, x * x * vb + y * y * va + va * vb, x * ub + y * ua]
        if op == "arith.divf":
            (_, _, ea, va, ua), (_, wb, eb, vb, ub) = known
            z, y = abs(w), abs(wb)
            # If the divisor's bound reaches zero, allow twice the first order: that of 1 + exp(x) extends upwards only.
            left = self.double(f"arith.maximumf {y - eb}, {y * self._number(0.5)}")
            found = [(ea + z * eb) / left, (va + z * z * vb) / (y * y), (ua + z * ub) / y]
            is_exact = self._do(f"arith.cmpf oeq, {ea + eb + (ua + ub)}, {zero} : f64")
            return [self.double(f"arith.select {is_exact}, {zero}, {one}") for one in found]
        # The change of the result when the arguments change: a worst-case bound, a variance, and the unit error for
        # arguments off by single roundings.
        single = self._number(SINGLE)
        bound = spread = unit = zero
        for k, (_, _, e, v, u) in enumerate(known):
            bound = bound + self._moved(op, known, k, e, w)
            off = self._moved(op, known, k, self.double(f"math.sqrt {v}"), w)
            spread = spread + off * off
            unit = unit + self._moved(op, known, k, u * single, w) / single
        return [bound, spread, unit]

    def _moved(self, op: str, known: list[list[_Double]], k: int, step: _Double, w: _Double) -> _Double:
        found = self._number(0.0)
        for moved in (known[k][1] + step, known[k][1] - step):
            values = ", ".join(str(moved if n == k else record[1]) for n, record in enumerate(known))
            off = abs(self.double(f"{op} {values}") - w)
            found = self.double(f"arith.maxnumf {found}, {off}")  # skips NaN, outside of the function's domain
        return found

    def _rounded(self, n: _Double, w: _Double, terms: list[_Double], type_: str, ulps: float) -> str:
        bound, spread, unit = terms
        roundoff, least, size = self._number(ulps * _unit(type_)), self._number(_LEAST[type_]), abs(w)
        is_infinite = self._do(f"arith.cmpf oeq, {size}, {self._number(math.inf)} : f64")  # rounding does not change it
        size = self.double(f"arith.select {is_infinite}, {self._number(0.0)}, {size}")
        # The operation rounds the result of rounded arguments, which may exceed the exact one by the bound.
        most, own = (size + bound) * roundoff + least, size * roundoff + least
        return self._record_of(n, w, bound + most, spread + own * own, unit + size * self._number(ulps))

    # -- numbers ----------------------------------------------------------------------------------------------------

    def _do(self, text: str) -> str:
        name = f"%v{len(self._lines)}"
        self._lines.append(f"  {name} = {text}")
        return name

    def double(self, text: str, type_: str = " : f64") -> _Double:
        """Write an operation on doubles."""
        return _Double(self, self._do(text + type_))

    def _number(self, value: float) -> _Double:
        return _Double(self, self._fixed(f"{value:.17e}" if math.isfinite(value) else "0x7FF0000000000000", "f64"))

    def _fixed(self, text: str, type_: str) -> str:
        return self._constants.setdefault((text, type_), f"%c{len(self._constants)}")

    def _widened(self, value: str, type_: str) -> _Double:
        if type_ == "f64":
            return _Double(self, value)
        if type_ != "f32":
            value = self._do(f"arith.extf {value} : {type_} to f32")
        return self.double(f"arith.extf {value} : f32 to f64", "")

    def _narrow(self, value: str, type_: str, source: str = "f64") -> str:
        """A rounded value as a number of a type; one of a wider type is rounded."""
        if type_ == source:
            return value
        if source == "f64" and type_ != "f64":
            value = self._do(f"arith.truncf {value} : f64 to f32")
        return value if type_ == "f32" else self._do(f"arith.truncf {value} : f32 to {type_}")

    def _record(self, k: int) -> list[_Double]:
        found = []
        for place in range(len(_FIELDS)):
            word = f"%a{k}"
            if place:
                word = self._do(f"arith.shrui {word}, {self._fixed(str(64 * place), _WORD)} : {_WORD}")
            word = self._do(f"arith.trunci {word} : {_WORD} to i64")
            found.append(self.double(f"arith.bitcast {word} : i64 to f64", ""))
        return found

    def _record_of(self, *values: _Double) -> str:
        found = ""
        for place, value in enumerate(values):
            word = self._do(f"arith.extui {self._do(f'arith.bitcast {value} : f64 to i64')} : i64 to {_WORD}")
            if place:
                word = self._do(f"arith.shli {word}, {self._fixed(str(64 * place), _WORD)} : {_WORD}")
            found = self._do(f"arith.ori {found}, {word} : {_WORD}") if found else word
        return self._end([found], [_WORD])

    def _end(self, values: list[str], types: list[str]) -> str:
        arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(self._arguments))
        fixed = [f"  {name} = arith.constant {text} : {type_}" for (text, type_), name in self._constants.items()]
        results = ", ".join(types)
        head = f"func.func private @{self._name}({arguments}) -> ({results}) {{"
        return "\n".join([head, *fixed, *self._lines, f"  return {', '.join(values)} : {results}", "}", ""])


def _element(dtype: DType) -> str:
    return ("bf" if dtype.kind == "bfloat" else "f") + str(dtype.bits)


def _unit(element: str) -> float:
    return 2.0 ** -(_MANTISSA_BITS[element] + 1)
