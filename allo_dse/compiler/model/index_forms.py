"""Index expressions as sums of the variables of loops, with proofs about them over the loops' domain.

for i in range(N):
    for j in range(i + 1):
        a[i - j]           the form i - j; j's bounds are the forms 0 and i, so i - j is within 0 and N - 1

The smallest value of a sum is found by putting the bounds of its variables in their place, innermost first: for
`i - j` that is `i - i`. A bound that is too wide never makes a wrong index look right. That an index is wrong is
only said with an iteration that has it (`worst`).

Numbers may differ between tasks: arrays that broadcast over the mesh. Those of 2**31 and more are given up, so that
products fit 64 bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen

from ..program.tensors import IntArray

Number = int | IntArray
_LARGEST = 1 << 31
_ORDER = itertools.count()


def is_zero(number: Number) -> bool:
    """Return whether a number is 0 in all tasks.

    Most are Python numbers, which are compared directly: a NumPy call takes microseconds.
    """
    return number == 0 if isinstance(number, int) else not np.any(number)


def is_natural(number: Number) -> bool:
    """Return whether a number is at least 0 in all tasks."""
    return number >= 0 if isinstance(number, int) else bool(np.all(number >= 0))


def _is_small(number: Number) -> bool:
    if isinstance(number, int):
        return -_LARGEST < number < _LARGEST
    return bool(np.all((number > -_LARGEST) & (number < _LARGEST)))


class Form(Frozen, eq=False, dict=True):
    """`constant` plus a factor times each of `terms`."""

    constant: Number
    terms: Mapping[Symbol, Number] = field(default_factory=dict)

    def plus(self, other: Form, factor: Number = 1) -> Form:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for symbol, number in other.terms.items():
            terms[symbol] = terms.get(symbol, 0) + factor * number
        kept = {symbol: number for symbol, number in terms.items() if not is_zero(number)}
        return Form(self.constant + factor * other.constant, kept)

    def times(self, other: Form) -> Form | None:
        """The product, where one of them is a number."""
        for one, number in ((self, other), (other, self)):
            if not number.terms:
                return Form(0).plus(one, number.constant)
        return None

    @cached_property
    def low(self) -> Number | None:
        """A number that it is never less than, in each task."""
        return _least(self)

    @cached_property
    def high(self) -> Number | None:
        """A number that it is never more than, in each task."""
        negative = _least(Form(0).plus(self, -1))
        return None if negative is None else -negative


class Symbol(Frozen, eq=False):
    """The variable of a loop, or the result of an operation on forms that is no sum itself.

    Attributes:
        name: of the variable in the source.
        lows, highs: forms that it is never less and never more than.
        step: of the loop; 0 for a symbol that does not take all values between its bounds.
    """

    name: str
    lows: tuple[Form, ...]
    highs: tuple[Form, ...]
    step: int = 0
    order: int = field(default_factory=lambda: next(_ORDER))


def constant(value: Number) -> Form | None:
    """A number as a form, if it is an integer that is not too large."""
    if not isinstance(value, int) and value.dtype.kind not in "iu":
        return None
    return _bounded(Form(value))


def _bounded(form: Form) -> Form | None:
    return form if _is_small(form.constant) and all(map(_is_small, form.terms.values())) else None


def variable(name: str, start: Form | None, stop: Form | None, step: int | None) -> Form:
    """The variable of `for name in range(start, stop, step)`; None is what is not known (a step is positive then)."""
    if step is None or step > 0:
        last = () if stop is None else (stop.plus(Form(-1)),)
        return _of(Symbol(name, () if start is None else (start,), last, step or 0))
    first = () if stop is None else (stop.plus(Form(1)),)
    return _of(Symbol(name, first, () if start is None else (start,), step))


def _of(symbol: Symbol) -> Form:
    return Form(0, {symbol: 1})


def combined(op: str, a: Form, b: Form) -> Form | None:
    """`a op b`, or None where nothing is known about it."""
    if op in ("+", "-"):
        return _bounded(a.plus(b, 1 if op == "+" else -1))
    if op == "*":
        product = a.times(b) or _product(a, b)
        return None if product is None else _bounded(product)
    if op in ("min", "max"):
        return _extreme(op, a, b)
    if b.terms or not isinstance(b.constant, int) or b.constant <= 0:
        return None
    return {"//": _quotient, "%": _remainder}[op](a, b.constant) if op in ("//", "%") else None


def _extreme(op: str, a: Form, b: Form) -> Form:
    near = (a, b) if _is_simple(a) and _is_simple(b) else ()  # or bounds would multiply with every further operation
    lows = () if a.low is None or b.low is None else (Form(_bound(op, a.low, b.low)),)
    highs = () if a.high is None or b.high is None else (Form(_bound(op, a.high, b.high)),)
    return _of(Symbol("", lows, highs + near) if op == "min" else Symbol("", lows + near, highs))


def _is_simple(form: Form) -> bool:
    return all(len(symbol.lows) < 2 and len(symbol.highs) < 2 for symbol in _domain(form.terms))


def _bound(op: str, a: Number, b: Number) -> Number:
    """The smaller or the larger number, in each task."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if op == "min" else max(a, b)
    extreme: IntArray = (np.minimum if op == "min" else np.maximum)(a, b)
    return extreme


def _product(a: Form, b: Form) -> Form | None:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None
    products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = products[0], products[0]
    for one in products[1:]:
        low, high = _bound("min", low, one), _bound("max", high, one)
    return _of(Symbol("", (Form(low),), (Form(high),)))


def _quotient(a: Form, by: int) -> Form:
    if all(is_zero(number % by) for number in (a.constant, *a.terms.values())):
        return Form(a.constant // by, {symbol: number // by for symbol, number in a.terms.items()})
    lows = () if a.low is None else (Form(a.low // by),)
    return _of(Symbol("", lows, () if a.high is None else (Form(a.high // by),)))


def _remainder(a: Form, by: int) -> Form:
    positive = a.low is not None and is_natural(a.low)
    if positive and a.high is not None and np.all(a.high < by):
        return a
    near = (a,) if positive and _is_simple(a) else ()
    return _of(Symbol("", (Form(0),), (Form(by - 1), *near)))


def _innermost(terms: Mapping[Symbol, Number]) -> Symbol:
    return max(terms, key=lambda symbol: symbol.order)


def _least(form: Form) -> Number | None:
    """The smallest value, by the bounds of the innermost variable in its place; the best where there are several."""
    if not form.terms:
        return form.constant
    best: Number | None = None
    for replaced in _replaced(form, _innermost(form.terms)):
        found = _least(replaced)
        if found is not None:
            best = found if best is None else _bound("max", best, found)
    return best


def _replaced(form: Form, symbol: Symbol) -> Iterator[Form]:
    """The form with a symbol's bounds in its place, so that it can only become smaller."""
    factor = form.terms[symbol]
    rest = _without(form, symbol)
    up, down = _bound("max", factor, 0), _bound("min", factor, 0)
    for low in (Form(0),) if is_zero(up) else symbol.lows:
        for high in (Form(0),) if is_zero(down) else symbol.highs:
            yield rest.plus(low, up).plus(high, down)


def _without(form: Form, symbol: Symbol) -> Form:
    return Form(form.constant, {one: factor for one, factor in form.terms.items() if one is not symbol})


def _domain(symbols: Iterable[Symbol]) -> set[Symbol]:
    """The symbols, and the symbols that their bounds depend on."""
    every = set(symbols)
    pending = list(every)
    while pending:
        symbol = pending.pop()
        new = {inner for bound in (*symbol.lows, *symbol.highs) for inner in bound.terms} - every
        every |= new
        pending.extend(new)
    return every


# -- conditions ------------------------------------------------------------------------------------------------------

NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def facts(op: str, a: Form, b: Form) -> tuple[Form, ...]:
    """Forms that are at least 0 where `a op b` holds."""
    difference, opposite = a.plus(b, -1), b.plus(a, -1)
    if op == "!=":
        if difference.low is not None and is_natural(difference.low):
            return (difference.plus(Form(-1)),)
        positive = opposite.low is not None and is_natural(opposite.low)
        return (opposite.plus(Form(-1)),) if positive else ()
    if op == "==":
        return difference, opposite
    one = difference if op in (">", ">=") else opposite
    return (one.plus(Form(-1)),) if op in ("<", ">") else (one,)


# -- iterations ------------------------------------------------------------------------------------------------------

_TRIES = 16


def worst(
    form: Form, task: Sequence[int], *, largest: bool, around: Sequence[Form] = ()
) -> tuple[int, dict[str, int]] | None:
    """The largest (or smallest) value of a form in one task, with the iteration that has it.

    None where no such iteration is found, or the form is not one of loop variables alone.

    Args:
        around: the variables of all loops around the index; each must run.
    """
    chosen = _directions(form, task, largest)
    if chosen is None:
        return None
    every = _domain({*chosen, *(symbol for variable in around for symbol in variable.terms)})
    if any(symbol.step == 0 for symbol in every):
        return None
    bounding = _domain(inner for symbol in every for bound in (*symbol.lows, *symbol.highs) for inner in bound.terms)
    free = [symbol for symbol in bounding if symbol not in chosen]
    rest = {symbol: True for symbol in every - bounding if symbol not in chosen}
    tries = itertools.product((True, False), repeat=len(free))
    for directions in itertools.islice(tries, _TRIES):  # until the inner loops run
        at = _iteration({**chosen, **rest, **dict(zip(free, directions, strict=True))}, task)
        if at is not None:
            return _value(form, at, task), {symbol.name: at[symbol] for symbol in at if symbol not in rest}
    return None


def _directions(form: Form, task: Sequence[int], largest: bool) -> dict[Symbol, bool] | None:
    """Return for each variable that matters whether it must be large; None if the bounds are unknown."""
    found: dict[Symbol, bool] = {}
    while form.terms:
        symbol = _innermost(form.terms)
        factor = form.terms[symbol]
        found[symbol] = up = (_at(factor, task) > 0) == largest
        bounds = symbol.highs if up else symbol.lows
        if symbol.step == 0 or not bounds:
            return None
        form = _without(form, symbol).plus(bounds[0], factor)
    return found


def _iteration(directions: Mapping[Symbol, bool], task: Sequence[int]) -> dict[Symbol, int] | None:
    """The iteration whose variables are as large or as small as asked for; None where a loop does not run."""
    at: dict[Symbol, int] = {}
    for symbol in sorted(directions, key=lambda one: one.order):
        if not symbol.lows or not symbol.highs:
            return None
        low, high = (_value(bounds[0], at, task) for bounds in (symbol.lows, symbol.highs))
        if low > high:
            return None
        whole = (high - low) // abs(symbol.step) * abs(symbol.step)
        if symbol.step > 0:
            at[symbol] = low + whole if directions[symbol] else low
        else:
            at[symbol] = high if directions[symbol] else high - whole
    return at


def _value(form: Form, at: Mapping[Symbol, int], task: Sequence[int]) -> int:
    return _at(form.constant, task) + sum(_at(factor, task) * at[symbol] for symbol, factor in form.terms.items())


def _at(number: Number, task: Sequence[int]) -> int:
    """A number in one task."""
    if isinstance(number, int):
        return number
    array = np.asarray(number)
    where = tuple(p if n > 1 else 0 for p, n in zip(task, array.shape, strict=True)) if array.ndim else ()
    return int(array[where])
