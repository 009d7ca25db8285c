"""A second definition of the language, to compare the simulator and generated C++ with.

It interprets the source of a region with Python's integers, fractions and floats, and imports nothing of the package:
a misunderstanding in the front end cannot repeat itself here. docs/language.md has the rules.

A number known at compile time (literal, pid, `meta_for` variable) is a Python number. Everything else is a `Number`.
Tasks are threads; streams are unbounded queues, so a program that needs bounded streams to block is not checked.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

SECONDS_PER_TOKEN = 600


@dataclass(frozen=True)
class Type:
    """An element type: `int`, `uint`, `fixed`, `ufixed`, `float`, `bfloat`, `index` or `bool`."""

    kind: str
    bits: int
    fraction: int = 0
    shape: tuple[int, ...] = ()

    def __getitem__(self, shape: Any) -> Type:
        return Type(self.kind, self.bits, self.fraction, shape if isinstance(shape, tuple) else (shape,))

    @property
    def element(self) -> Type:
        return Type(self.kind, self.bits, self.fraction)

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_fixed(self) -> bool:
        return self.kind in ("fixed", "ufixed")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("fixed", "index") or (self.kind == "int" and self.bits > 1)


def integer(bits: int, *, signed: bool) -> Type:
    return Type("int" if signed else "uint", bits)


INDEX, BOOL, INT32 = Type("index", 64), Type("bool", 1), Type("int", 32)
FLOAT32, FLOAT64 = Type("float", 32), Type("float", 64)
TYPES: dict[str, Any] = {
    "Int": lambda bits: Type("int", bits), "UInt": lambda bits: Type("uint", bits),
    "Fixed": lambda bits, fraction: Type("fixed", bits, fraction),
    "UFixed": lambda bits, fraction: Type("ufixed", bits, fraction),
    "float16": Type("float", 16), "bfloat16": Type("bfloat", 16), "float32": FLOAT32, "float64": FLOAT64,
    "index": INDEX, "bool": BOOL,
    **{f"{prefix}int{bits}": Type(f"{prefix}int", bits) for prefix in ("", "u") for bits in (*range(1, 17), 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A run-time number: an int for integers, a Fraction for fixed-point numbers, a float for floats."""

    type: Type
    value: Any


@dataclass
class Tile:
    """Numbers of one type; those of `exact` sums and products are not wrapped around before they are stored."""

    type: Type
    values: Any
    exact: bool = False


def wrapped(value: int, bits: int, *, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def rounded(value: float, type_: Type) -> float:
    """A float to the nearest of a type, ties to even."""
    if type_.kind == "bfloat":
        value = float(np.float32(value))
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        if not math.isfinite(value):
            return value
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])
    with np.errstate(over="ignore"):
        narrow: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bits]
        return float(narrow(value))


def stored(value: Any, source: Type, to: Type) -> Any:
    """A value of one type as another type holds it."""
    if to.is_float:
        if source.is_fixed and to.bits == 64:
            return float(value)
        return rounded(float(np.float32(float(value))) if source.is_fixed else float(value), to)
    if to.kind == "bool":
        return int(value != 0)
    if source.is_float and not math.isfinite(value):
        raise ValueError("a float that is no number has no integer value")
    if to.is_fixed:
        raw = math.floor(Fraction(value) * (1 << to.fraction))
        return Fraction(wrapped(raw, to.bits, signed=to.is_signed), 1 << to.fraction)
    whole = int(value) if source.is_float else math.floor(value)
    return wrapped(whole, to.bits, signed=to.is_signed)


def common(a: Type, b: Type) -> Type:
    """The type that holds the values of both."""
    if a == b:
        return a
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            return FLOAT32 if a.bits == b.bits else max(a, b, key=lambda t: t.bits)
        return a if a.is_float else b
    a, b = (INT32 if t == INDEX else t for t in (a, b))
    signed = a.is_signed or b.is_signed
    whole = max(t.bits - t.fraction + (signed and not t.is_signed) for t in (a, b))
    if a.is_fixed or b.is_fixed:
        fraction = max(a.fraction, b.fraction)
        return Type("fixed" if signed else "ufixed", whole + fraction, fraction)
    return integer(whole, signed=signed)


def result_type(op: str, a: Type, b: Type) -> Type:
    """The type of `a op b`: sums have a bit more, products as many as both."""
    if op in ("<<", ">>"):
        return INT32 if a == INDEX else a
    if a == b == INDEX:
        return FLOAT32 if op == "/" else INDEX
    both = common(a, b)
    a, b = (INT32 if t == INDEX else t for t in (a, b))
    if both.is_float or op in ("min", "max", "%", "&", "|", "^", "**") or (both.is_fixed and op in ("/", "//")):
        return both
    signed = both.is_signed or op == "-"
    if op == "*":
        bits = a.bits + b.bits
        fraction = a.fraction + b.fraction
    else:
        bits = both.bits + both.is_signed if op in ("/", "//") else common(a, b).bits + 1
        fraction = both.fraction
    if both.is_fixed:
        return Type("fixed" if signed else "ufixed", bits, fraction)
    return integer(bits, signed=signed)


PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "min": min, "max": max,
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Div: "/", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
RING = {"add": "+", "sub": "-", "mul": "*"}
ELEMENTWISE = RING | {"div": "/", "max": "max", "min": "min", "power": "**"}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "gelu": lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2))),
}  # fmt: skip


def computed(op: str, x: Any, y: Any, type_: Type) -> Any:
    """`x op y` of values that have type `type_` already, before the result is stored as one."""
    if op == "/" and not type_.is_float:  # truncates
        quotient = abs(Fraction(x)) / abs(Fraction(y)) * (1 << type_.fraction)
        return Fraction(math.floor(quotient) * (1 if (x < 0) == (y < 0) else -1), 1 << type_.fraction)
    if type_.is_float and op in ("min", "max"):
        return math.nan if x != x or y != y else PYTHON[op](x, y, key=lambda v: (v, math.copysign(1, v)))
    if type_.is_float:
        work = np.float32 if op in ("//", "%") and type_.bits < 64 else np.float64
        with np.errstate(all="ignore"):
            return float(PYTHON[op](work(x), work(y)))
    return PYTHON[op](x, y)


def literal(value: Any, other: Type | None) -> Number:
    """A Python number beside an operand of type `other`: it takes that of a float or an index."""
    if other is not None and other.is_float:
        return Number(other, rounded(float(value), other))
    if isinstance(value, float):
        return Number(FLOAT32, rounded(value, FLOAT32))
    return Number(INDEX if other == INDEX else integer(max(32, value.bit_length() + 1), signed=True), int(value))


def binary(op: str, a: Any, b: Any) -> Any:
    """`a op b` of Python numbers and run-time numbers."""
    if not isinstance(a, Number) and not isinstance(b, Number):
        return PYTHON[op](a, b)
    a, b = (
        one if isinstance(one, Number) else literal(one, other.type if isinstance(other, Number) else None)
        for one, other in ((a, b), (b, a))
    )
    if op in COMPARISONS:
        type_ = common(a.type, b.type)
        return Number(BOOL, int(PYTHON[op](stored(a.value, a.type, type_), stored(b.value, b.type, type_))))
    type_ = result_type(op, a.type, b.type)
    if op in ("<<", ">>"):
        return Number(type_, _shifted(op, a, b.value, type_))
    if op == "*" and not type_.is_float:
        return Number(type_, stored(a.value * b.value, type_, type_))
    x, y = (stored(one.value, one.type, type_) for one in (a, b))
    return Number(type_, stored(computed(op, x, y, type_), type_, type_))


def _shifted(op: str, value: Number, by: int, type_: Type) -> Any:
    raw = int(value.value * (1 << type_.fraction))
    if by < 0 or by >= type_.bits:
        raw = 0 if op == "<<" or raw >= 0 else -1
    else:
        raw = wrapped(raw << by if op == "<<" else raw >> by, type_.bits, signed=type_.is_signed)
    return Fraction(raw, 1 << type_.fraction) if type_.is_fixed else raw


def unary(name: str, x: Any) -> Any:
    """A function of one number."""
    if not isinstance(x, Number):
        x = literal(x, None)
    if name in ("abs", "relu"):
        return Number(x.type, stored(abs(x.value) if name == "abs" else max(x.value, 0), x.type, x.type))
    type_ = x.type if x.type.is_float else FLOAT32
    work = FLOAT32 if type_.bits == 16 else type_
    with np.errstate(all="ignore"):
        result = FUNCTIONS[name](np.float64(stored(x.value, x.type, work)))
    return Number(type_, stored(stored(result, FLOAT64, work), work, type_))


def elementwise(name: str, *operands: Any, grows: bool = False) -> Tile:
    """An operation on tiles and numbers, with broadcasting; sums and products wrap around where they are stored."""
    ring = name in RING
    types = [o.type for o in operands if isinstance(o, (Tile, Number))]
    natural = types[0] if len(types) == 1 else common(*types)
    floats = any(isinstance(o, float) for o in operands)
    natural = common(natural, FLOAT32) if floats and not natural.is_float else natural
    arrays = []
    for o in operands:
        if not isinstance(o, (Tile, Number)):
            arrays.append(np.array(literal(o, natural), object))
            continue
        values = np.asarray(o.values if isinstance(o, Tile) else o.value, object)
        exact = isinstance(o, Tile) and o.exact and ring
        arrays.append(_each(lambda v, t=o.type, e=exact: Number(t, v if e else stored(v, t, t)), values))
    if len(operands) == 1:
        results = _each(lambda v: unary(name, v), arrays[0])
        return Tile(results.flat[0].type, _each(lambda v: v.value, results))
    op = ELEMENTWISE[name]
    whole = natural.kind in ("int", "uint")
    type_ = result_type(op, *(a.flat[0].type for a in arrays)) if grows and not natural.is_float else natural

    def combined(a: Number, b: Number) -> Any:
        if ring and whole:
            return PYTHON[op](a.value, b.value)
        if op == "*" and natural.is_fixed:
            return stored(a.value * b.value, type_, type_)
        x, y = (stored(one.value, one.type, type_) for one in (a, b))
        return stored(computed(op, x, y, type_), type_, type_)

    return Tile(type_, np.asarray(np.frompyfunc(combined, 2, 1)(*arrays), object), exact=ring and whole)


def _each(function: Callable[[Any], Any], values: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(np.frompyfunc(function, 1, 1)(values), object)


class _Task:
    """One task: its names, and the statements and expressions of a kernel."""

    def __init__(self, names: dict[str, Any], pids: tuple[int, ...]) -> None:
        self.names, self.pids = names, pids

    def run(self, body: list[ast.stmt]) -> None:
        taken = False
        for statement in body:
            if isinstance(statement, ast.With):
                taken = self._with(statement, taken)
            else:
                getattr(self, f"_{type(statement).__name__}")(statement)

    def _with(self, node: ast.With, taken: bool) -> bool:
        call, bound = node.items[0].context_expr, node.items[0].optional_vars
        assert isinstance(call, ast.Call)
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if kind == "meta_for":
            for value in range(*(self.value(a) for a in call.args)):
                self._bind(bound, value)
                self.run(node.body)
            return False
        chosen = (kind == "meta_if" or not taken) and (kind == "meta_else" or bool(self.value(call.args[0])))
        if chosen:
            self.run(node.body)
        return chosen or (kind == "meta_elif" and taken)

    def _For(self, node: ast.For) -> None:
        assert isinstance(node.iter, ast.Call)
        bounds = [v.value if isinstance(v, Number) else v for v in map(self.value, node.iter.args)]
        grid = isinstance(node.iter.func, ast.Attribute)
        rounds: Iterator[Any] = itertools.product(*map(range, bounds)) if grid else zip(range(*bounds))
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        for values in rounds:
            for target, value in zip(targets, values, strict=True):
                self._bind(target, Number(INDEX, value))
            self.run(node.body)

    def _While(self, node: ast.While) -> None:
        while self._holds(node.test):
            self.run(node.body)

    def _If(self, node: ast.If) -> None:
        self.run(node.body if self._holds(node.test) else node.orelse)

    def _Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        type_ = self.value(node.annotation)
        value = 0 if node.value is None else self.value(node.value)
        assert isinstance(node.target, ast.Name)
        if type_.shape:
            self.names[node.target.id] = Tile(type_.element, np.full(type_.shape, _as(0, type_.element), object))
            self._fill(self.names[node.target.id], ..., value)
        else:
            self.names[node.target.id] = Number(type_, _as(value, type_))

    def _Assign(self, node: ast.Assign) -> None:
        self._set(node.targets[0], self.value(node.value))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        value = self.value(ast.BinOp(node.target, node.op, node.value))
        self._set(node.target, value)

    def _set(self, target: ast.expr | None, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for one, part in zip(target.elts, value, strict=True):
                self._set(one, part)
        elif isinstance(target, ast.Subscript):
            self._fill(self.value(target.value), self._index(target.slice), value)
        else:
            assert isinstance(target, ast.Name)
            old = self.names.get(target.id)
            self.names[target.id] = Number(old.type, _as(value, old.type)) if isinstance(old, Number) else value

    def _bind(self, target: Any, value: Any) -> None:
        self.names[target.id] = value

    def _fill(self, tile: Tile, where: Any, value: Any) -> None:
        if isinstance(value, Tile):
            tile.values[where] = _each(lambda v: stored(v, value.type, tile.type), value.values)
        else:
            tile.values[where] = _as(value, tile.type)

    def _holds(self, node: ast.expr) -> bool:
        value = self.value(node)
        return bool(value.value if isinstance(value, Number) else value)

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(one) for one in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if e is None else self._index(e) for e in (node.lower, node.upper, node.step)))
        value = self.value(node)
        return int(value.value) if isinstance(value, Number) else value

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.names[node.id]
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.BinOp):
            return self._operator(SYMBOLS[type(node.op)], self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.IfExp):
            return self._choice(node)
        if isinstance(node, ast.BoolOp):
            quick = isinstance(node.op, ast.Or)
            return Number(BOOL, int((any if quick else all)(self._holds(v) for v in node.values)))
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Subscript):
            return self._element(node)
        assert isinstance(node, ast.Call), ast.dump(node)
        return self._call(node)

    def _operator(self, op: str, a: Any, b: Any) -> Any:
        if isinstance(a, Tile) or isinstance(b, Tile):
            name = next(name for name, symbol in ELEMENTWISE.items() if symbol == op)
            return elementwise(name, a, b, grows=True)
        return binary(op, a, b)

    def _comparison(self, node: ast.Compare) -> Any:
        values = [self.value(v) for v in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        results = [binary(SYMBOLS[type(op)], a, b) for op, a, b in pairs]
        if len(results) == 1:
            return results[0]
        return Number(BOOL, int(all(r.value if isinstance(r, Number) else r for r in results)))

    def _choice(self, node: ast.IfExp) -> Any:
        chosen, other = self.value(node.body), self.value(node.orelse)
        if not self._holds(node.test):
            chosen, other = other, chosen
        if not isinstance(chosen, Number) and not isinstance(other, Number):
            return chosen
        first, second = (
            v if isinstance(v, Number) else literal(v, w.type if isinstance(w, Number) else None)
            for v, w in ((chosen, other), (other, chosen))
        )
        type_ = common(first.type, second.type)
        return Number(type_, stored(first.value, first.type, type_))

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Number(BOOL, int(not self._holds(node.operand)))
        if not isinstance(value, Number):
            signs: Any = {ast.USub: operator.neg, ast.Invert: operator.invert, ast.UAdd: operator.pos}
            return signs[type(node.op)](value)
        if isinstance(node.op, ast.Invert):
            return Number(value.type, stored(~value.value, value.type, value.type))
        return Number(value.type, -value.value) if value.type.is_float else binary("-", 0, value)

    def _element(self, node: ast.Subscript) -> Any:
        base, where = self.value(node.value), self._index(node.slice)
        if not isinstance(base, Tile):
            return base[where]
        values = base.values[where]
        return Tile(base.type, values) if isinstance(values, np.ndarray) else Number(base.type, values)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "put"):
            stream = self.value(node.func.value)
            if node.func.attr == "get":
                return stream.tokens.get(timeout=SECONDS_PER_TOKEN)
            return stream.put(self.value(node.args[0]))
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "get_pid":
            return self.pids[0] if len(self.pids) == 1 else self.pids
        args = [self.value(a) for a in node.args]
        if name in TYPES or not name:
            type_ = self.value(node.func) if not name or isinstance(TYPES[name], Type) else None
            return TYPES[name](*args) if type_ is None else Number(type_, _as(args[0], type_))
        if name in ELEMENTWISE or name in FUNCTIONS or name in ("abs", "relu"):
            if any(isinstance(a, Tile) for a in args):
                return elementwise(name, *args)
            return unary(name, args[0]) if len(args) == 1 else binary(ELEMENTWISE[name], *args)
        assert name == "matmul", name
        return _matmul(*args)


def _as(value: Any, type_: Type) -> Any:
    if isinstance(value, Number):
        return stored(value.value, value.type, type_)
    return stored(value, FLOAT64 if isinstance(value, float) else INT32, type_)


def _matmul(a: Tile, b: Tile) -> Tile:
    type_ = common(a.type, b.type)
    if type_.is_fixed:  # each product is rounded down
        products = a.values[:, :, None] * b.values[None, :, :]
        return Tile(type_, _each(lambda v: stored(v, type_, type_), products).sum(axis=1))
    return Tile(type_, a.values @ b.values, exact=True)


class _Stream:
    def __init__(self, type_: Type) -> None:
        self.type, self.tokens = type_, queue.SimpleQueue[Any]()

    def put(self, value: Any) -> None:
        if self.type.shape:
            tile = Tile(self.type.element, np.empty(self.type.shape, object))
            tile.values[...] = _each(lambda v: stored(v, value.type, tile.type), value.values)
            self.tokens.put(tile)
        else:
            self.tokens.put(Number(self.type, _as(value, self.type)))


def interpret(source: str, tensors: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """What the region in `source` leaves in its tensors.

    Args:
        tensors: nested lists of numbers by name of the region's argument; raw integers of fixed-point numbers.

    Returns:
        Arrays of objects by name: ints, floats, and raw integers of fixed-point numbers.
    """
    region = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
    top = _Task(dict(TYPES), ())
    for argument in region.args.args:
        assert argument.annotation is not None
        type_ = top.value(argument.annotation) if isinstance(argument.annotation, ast.Name) else _tensor(top, argument)
        given = np.array(tensors[argument.arg], object).reshape(type_.shape)
        if type_.is_fixed:
            given = _each(lambda v, f=type_.fraction: Fraction(int(v), 1 << f), given)
        top.names[argument.arg] = Tile(type_.element, given)
    failures: list[BaseException] = []
    threads = []
    for statement in region.body:
        if isinstance(statement, ast.AnnAssign):
            _declare(top, statement)
        elif isinstance(statement, ast.FunctionDef):
            threads += list(_tasks(top, statement, failures))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    results = {}
    for argument in region.args.args:
        tile = top.names[argument.arg]
        scale = (1 << tile.type.fraction) if tile.type.is_fixed else 1
        results[argument.arg] = _each(lambda v, s=scale: int(v * s) if s != 1 else v, tile.values)
    return results


def _tensor(task: _Task, argument: ast.arg) -> Type:
    """`T[M, N]`: an annotation is no element of a tile."""
    annotation = argument.annotation
    assert isinstance(annotation, ast.Subscript)
    return task.value(annotation.value)[task._index(annotation.slice)]  # type: ignore[no-any-return]


def _declare(top: _Task, statement: ast.AnnAssign) -> None:
    """`name: Stream[T, depth][P, Q]`."""
    annotation: Any = statement.annotation
    extents: tuple[Any, ...] = ()
    assert isinstance(annotation, ast.Subscript)
    if isinstance(annotation.value, ast.Subscript):
        extents = top._index(annotation.slice)
        extents, annotation = extents if isinstance(extents, tuple) else (extents,), annotation.value
    assert isinstance(annotation.slice, ast.Tuple)
    type_ = top.value(annotation.slice.elts[0])
    streams = np.empty(extents, object)
    for where in np.ndindex(*extents):
        streams[where] = _Stream(type_)
    assert isinstance(statement.target, ast.Name)
    top.names[statement.target.id] = streams if extents else streams[()]


def _own_tile(top: _Task, annotation: Any, tile: Tile, mesh: list[int], pids: tuple[int, ...]) -> Tile:
    """The part of a tensor that a task has by `T[M, N] @ [Layout.Shard(0), Layout.Replicate]`."""
    if not isinstance(annotation, ast.BinOp):
        return tile
    assert isinstance(annotation.right, ast.List)
    own: list[slice] = []
    for size, part in zip(tile.values.shape, annotation.right.elts, strict=True):
        axis = top.value(part.args[0]) if isinstance(part, ast.Call) else None
        share = size if axis is None else size // mesh[axis]
        first = 0 if axis is None else pids[axis] * share
        own.append(slice(first, first + share))
    return Tile(tile.type, tile.values[tuple(own)])


def _tasks(top: _Task, kernel: ast.FunctionDef, failures: list[BaseException]) -> Iterator[threading.Thread]:
    decorator = kernel.decorator_list[0]
    assert isinstance(decorator, ast.Call)
    options = {k.arg: k.value for k in decorator.keywords}
    mapping, args = options["mapping"], options.get("args", ast.List([]))
    assert isinstance(mapping, ast.List)
    assert isinstance(args, ast.List)
    mesh = [top.value(extent) for extent in mapping.elts]
    pairs = [(p, top.value(a)) for p, a in zip(kernel.args.args, args.elts, strict=True)]
    for pids in itertools.product(*map(range, mesh)):
        names = {p.arg: _own_tile(top, p.annotation, tile, mesh, pids) for p, tile in pairs}
        task = _Task(top.names | names, pids)

        def run(task: _Task = task) -> None:
            try:
                task.run(kernel.body)
            except BaseException as failure:
                failures.append(failure)

        yield threading.Thread(target=run, daemon=True)
