"""Parameters of a study's program, conditions on them, and the assignments that satisfy all conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from allo_dse.common.errors import StudyError, of_the_study
from allo_dse.common.records import divisors_of

Condition = Callable[["Assignment"], object]


class Assignment(Mapping[str, object]):
    """Parameter values by name: a read-only mapping whose entries are also attributes (`p["Pm"]` or `p.Pm`)."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no parameter {name!r}; there are {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Assignment({self._values!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Assignment, (dict(self._values),)


@dataclass(frozen=True)
class Parameter:
    """The values one program parameter may take.

    Attributes:
        values: all values, smallest first when `ordered`.
        ordered: whether neighbours in `values` are similar, so that samplers can take small steps.
        when: condition on earlier parameters; the program receives this parameter only if it holds.
    """

    values: tuple[Any, ...]
    ordered: bool = True
    when: Condition | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise StudyError("a parameter has no value left to choose from", hint="widen its bounds")

    def describe(self) -> list[str]:
        return [plain_value(v) for v in self.values]

    def position(self, value: object) -> int:
        """Return the position of a value; 1 and True have different positions, though they are equal in Python."""
        try:
            return self._places[value]
        except (KeyError, TypeError):
            found = self._positions.get(plain_value(value))
            return self.values.index(value) if found is None else found

    @cached_property
    def _places(self) -> dict[object, int]:
        """Positions by value, for a fast lookup; empty if some values are equal or not hashable."""
        try:
            places: dict[object, int] = {value: place for place, value in enumerate(self.values)}
        except TypeError:
            return {}
        return places if len(places) == len(self.values) else {}

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Positions by the text of the value; the first one where several have the same text."""
        return {text: place for place, text in reversed(list(enumerate(self.describe())))}


def plain_value(value: Any) -> str:
    """Return a parameter value as text that is the same in every process (no addresses)."""
    if isinstance(value, str | int | float | bool | None):
        return str(value)
    return str(getattr(value, "name", None) or getattr(value, "__name__", None) or value)


def divisors(number: int, *, at_least: int = 1, at_most: int | None = None, when: Condition | None = None) -> Parameter:
    """All divisors of `number` between `at_least` and `at_most`, both included.

        >>> divisors(12, at_most=6).values
        (1, 2, 3, 4, 6)

    Raises:
        StudyError: if there is none, or `number` is not positive.
    """
    if not isinstance(number, int) or number < 1:
        raise StudyError(f"divisors({number!r}): a positive whole number is needed")
    high = number if at_most is None else at_most
    every = divisors_of(number)
    found = tuple(d for d in every if at_least <= d <= high)
    if not found:
        raise StudyError(f"{number} has no divisor from {at_least} to {high}", hint=f"its divisors: {list(every)}")
    return Parameter(found, when=when)


def powers_of_two(low: int, high: int, *, when: Condition | None = None) -> Parameter:
    """The powers of two from `low` to `high`, both included.

    >>> powers_of_two(4, 32).values
    (4, 8, 16, 32)
    """
    found = tuple(1 << e for e in range(max(high, 1).bit_length()) if low <= 1 << e <= high)
    if not found:
        raise StudyError(f"there is no power of two from {low} to {high}")
    return Parameter(found, when=when)


def choices(values: Iterable[object], *, ordered: bool | None = None, when: Condition | None = None) -> Parameter:
    """Return a parameter with any of the given values.

    Args:
        ordered: whether neighbours in the list are similar; by default they are if it is of rising numbers.
    """
    if not isinstance(values, Iterable):
        raise StudyError(f"choices({values!r}): a list is needed")
    found = tuple(values)
    if len({plain_value(v) for v in found}) != len(found):
        raise StudyError(f"choices({list(found)!r}) contains the same value twice")
    return Parameter(found, ordered=rising(found) if ordered is None else ordered, when=when)


def rising(values: Sequence[object]) -> bool:
    """Return whether values are numbers in ascending order, as tile sizes are."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(values) and all(a < b for a, b in pairwise(numbers))


class ParameterSpace:
    """Named parameters and the conditions on them.

    Args:
        parameters: by name; anything that is not a `Parameter` is a fixed value.
        where: conditions that every complete assignment must satisfy.
    """

    def __init__(self, parameters: Mapping[str, object], where: Sequence[Condition] = ()) -> None:
        if not isinstance(parameters, Mapping):
            raise StudyError(f"params={parameters!r} does not name parameters", hint='params={"P": choices([4, 8])}')
        for name, value in parameters.items():
            if isinstance(value, list | range | set):
                raise StudyError(
                    f"parameter {name}={value!r}: a list is neither a value nor a choice",
                    hint=f"{name}=choices({value!r}) to choose one of them; a tuple is passed as it is",
                )
        self.parameters: dict[str, Parameter] = {
            name: value if isinstance(value, Parameter) else Parameter((value,)) for name, value in parameters.items()
        }
        self.where = tuple(where)

    @cached_property
    def free(self) -> dict[str, Parameter]:
        """The parameters that have something to decide."""
        return {name: p for name, p in self.parameters.items() if len(p.values) > 1}

    @property
    def conditional(self) -> bool:
        """Return whether the legal values of one parameter depend on others."""
        return bool(self.where) or any(parameter.when for parameter in self.parameters.values())

    @property
    def product(self) -> int:
        """Number of combinations of values before any condition."""
        return math.prod(len(p.values) for p in self.parameters.values())

    def assign(self, pick: Callable[[str, Parameter], int]) -> Assignment:
        """Choose every active parameter's value by position; `pick` is asked only where there is a choice."""
        values: dict[str, object] = {}
        for name, parameter in self.parameters.items():
            if parameter.when is None or self._active(name, parameter.when, values):
                position = pick(name, parameter) if len(parameter.values) > 1 else 0
                values[name] = parameter.values[position]
        return Assignment(values)

    def positions(self, params: Mapping[str, object]) -> dict[str, int]:
        """The inverse of `assign`: the position of each free parameter's value."""
        return {name: parameter.position(params[name]) for name, parameter in self.free.items() if name in params}

    def recorded(self, logged: Mapping[str, object]) -> Assignment | None:
        """Return the assignment that a log records, or None if it is not legal.

        The log holds texts for values that JSON does not have.
        """
        try:
            found = self.assign(lambda name, parameter: parameter.position(logged[name]))
        except (KeyError, ValueError):
            return None
        return found if found.keys() == logged.keys() & self.parameters.keys() and self.allows(found) else None

    def allows(self, params: Assignment) -> bool:
        """Return whether a complete assignment satisfies every `where` condition."""
        return all(_ask(condition, params, "where") for condition in self.where)

    def assignments(self) -> Iterator[Assignment]:
        """Yield every legal assignment, in the order of the declared values; the last parameter varies fastest."""
        for values in self._extend(list(self.parameters.items()), {}):
            params = Assignment(values)
            if self.allows(params):
                yield params

    def _extend(self, rest: list[tuple[str, Parameter]], values: dict[str, object]) -> Iterator[dict[str, object]]:
        if not rest:
            yield values
            return
        (name, parameter), *others = rest
        if parameter.when is not None and not self._active(name, parameter.when, values):
            yield from self._extend(others, values)
            return
        for value in parameter.values:
            yield from self._extend(others, {**values, name: value})

    def _active(self, name: str, when: Condition, values: dict[str, object]) -> bool:
        return _ask(when, Assignment(values), f"when= of parameter {name!r}")


def _ask(condition: Condition, params: Assignment, what: str) -> bool:
    with of_the_study(
        what, "`when=` sees the parameters declared before it; conditional ones may be absent (use p.get(name))"
    ):
        return bool(condition(params))
