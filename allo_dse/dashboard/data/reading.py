"""Entries of a log as a table takes them in: new designs that follow each other are one batch, by columns."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen
from allo_dse.tune.results.causes import TEXTS, mapping_choices
from allo_dse.tune.store.log import NONSENSE
from allo_dse.tune.store.record import NOTHING, Entry, Record, Revaluation, Tick, Verification, json_value, json_values
from allo_dse.tune.store.run_info import RunInfo, failure_kind

from .columns import Floats, Kind, Repeated, Values, as_numbers, is_number, listed
from .follow import Where

# A design's entry is flattened to one cell per column. Equal texts of parts are parsed only once.


META = ("number", "key", "status", "at", "seconds", "evaluator", "worker", "cached")
_ABSENT = bytes(NOTHING)
_MAPPING = TEXTS[1:]
_TEXTS = tuple(attrgetter(f"{name}_json") for name in _MAPPING)
MAX_PARTS = 50_000
"""Texts that are remembered at once."""


class MappingPart(NamedTuple):
    """The columns that a part of a mapping fills, with their values.

    Attributes:
        shape: a number that is the same for all parts with these names.
    """

    names: tuple[str, ...]
    values: tuple[object, ...]
    shape: int


class MappingParts:
    """Parts of the mappings of designs: many designs share each."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], int] = {}
        self._known: tuple[dict[bytes, MappingPart], ...] = tuple({} for _ in _MAPPING)

    def mapping(self, entries: Sequence[Record]) -> list[Repeated[MappingPart]]:
        """Per text of a mapping the parts of some designs.

        Raises:
            TypeError, AttributeError, ValueError: when a text says something else than a description of a design.
        """
        return [self._column(number, list(map(text, entries))) for number, text in enumerate(_TEXTS)]

    def _column(self, number: int, raw: list[msgspec.Raw]) -> Repeated[MappingPart]:
        known = self._known[number]
        if len(known) >= MAX_PARTS:
            known.clear()
        texts = Repeated.among([_ABSENT if text is NOTHING else bytes(text) for text in raw])
        for text in set(texts.few) - known.keys():
            pairs = mapping_choices(_MAPPING[number], json_value(msgspec.Raw(text)))
            names = tuple(name for name, _ in pairs)
            shape = self._shapes.setdefault(names, len(self._shapes))
            known[text] = MappingPart(names, tuple(value for _, value in pairs), shape)
        return Repeated([known[text] for text in texts.few], texts.which)


def meta(entries: Sequence[Record]) -> dict[str, Sequence[Any]]:
    """Return the entries' own fields by the names in `META`; None where a field is empty."""
    said = {name: list(map(attrgetter(name), entries)) for name in META}
    return said | {name: [value or None for value in said[name]] for name in ("evaluator", "worker", "cached")}


def reason(entry: Record) -> str | None:
    """Why a design is not feasible, in a few words: constraints by name, failures by kind."""
    if entry.status == "infeasible":
        return ", ".join(name for name, v in (entry.constraints or {}).items() if v > 0) or "infeasible"
    if entry.status == "failed":
        return failure_kind(entry.error)
    return None


# Consecutive designs with the same structure are converted column by column.


Columns = dict[str, tuple[Kind, Values]]


class Irregular(Exception):
    """Designs whose metrics have the same names, but not the same structure."""


def columns_of(entries: Sequence[Record], parts: MappingParts, facts: RunInfo) -> Columns:
    """Return the cells of several designs by column; None where a design has no value.

    Columns stand in the order in which the designs, one after the other, would bring them up, with the kind they have
    in the first that does.

    Raises:
        Irregular: then they have to be taken one by one.
        TypeError, AttributeError, ValueError: if one of them is no description of a design.
    """
    chosen = [values or {} for values in json_values([entry.params_json for entry in entries])]
    mapping, said = parts.mapping(entries), meta(entries)
    groups = _groups(entries, chosen, mapping, said)
    if len(groups) == 1:
        return dict(_columns(entries, chosen, mapping, said, facts))
    whole: dict[str, tuple[Kind, list[object]]] = {}
    for members in groups:
        some, picked = [entries[i] for i in members], [chosen[i] for i in members]
        mapped = [part.of(members) for part in mapping]
        own = {name: [values[i] for i in members] for name, values in said.items()}
        for name, (kind, values) in dict(_columns(some, picked, mapped, own, facts)).items():
            column = whole.setdefault(name, (kind, [None] * len(entries)))[1]
            for position, value in zip(members, listed(values), strict=True):
                column[position] = value
    return {**whole}


def _groups(
    entries: Sequence[Record],
    chosen: Sequence[Mapping[str, object]],
    mapping: Sequence[Repeated[MappingPart]],
    said: Mapping[str, Sequence[object]],
) -> list[Sequence[int]]:
    """Positions of designs that fill the same columns in the same order, as far as names tell."""
    traits: list[list[object]] = []
    for own in mapping:
        shapes = [part.shape for part in own.few]
        if len(set(shapes)) > 1:
            traits.append([shapes[position] for position in own.which.tolist()])
    named = [[tuple(e.metrics or ()) for e in entries], [tuple(e.values or ()) for e in entries]]
    named.append(list(map(tuple, chosen)))
    traits += [[*names] for names in named if len(set(names)) > 1]
    traits += [[v is None for v in values] for values in said.values() if 0 < values.count(None) < len(values)]
    if not traits:
        return [range(len(entries))]
    groups: dict[object, list[int]] = {}
    for position, shape in enumerate(zip(*traits, strict=True)):
        groups.setdefault(shape, []).append(position)
    return list(groups.values())


def _columns(
    entries: Sequence[Record],
    chosen: Sequence[Mapping[str, object]],
    mapping: Sequence[Repeated[MappingPart]],
    said: Mapping[str, Sequence[object]],
    facts: RunInfo,
) -> Iterator[tuple[str, tuple[Kind, Values]]]:
    """The columns of designs of one shape."""
    metrics = _turned([entry.metrics or {} for entry in entries])
    stated = _turned([entry.values or {} for entry in entries])
    absent = (None,) * len(entries)
    for objective in facts.objectives:
        yield objective.name, ("objective", stated.get(objective.name, metrics.get(objective.name, absent)))
    # Columns that every design has: parameters and metrics of these names are not shown.
    taken = {*META, "reason", *(o.name for o in facts.objectives)}
    yield from ((name, ("parameter", values)) for name, values in _turned(chosen).items() if name not in taken)
    for own in mapping:
        columns = zip(own.few[0].names, zip(*(part.values for part in own.few), strict=True), strict=True)
        yield from ((name, ("mapping", Repeated(few, own.which))) for name, few in columns)
    for name, column in metrics.items():
        if name not in taken and name not in chosen[0]:
            yield from ((name, ("metric", values)) for name, values in _metric(name, column))
    yield from ((name, ("meta", own)) for name, own in said.items() if own[0] is not None)
    yield "reason", ("meta", [reason(entry) for entry in entries])


def _metric(name: str, column: Sequence[Any]) -> Iterator[tuple[str, Sequence[object]]]:
    """The columns of a metric, or of its parts, unless it is a list."""
    types = set(map(type, column))
    if dict in types:
        if types != {dict} or len(set(map(tuple, column))) > 1:
            raise Irregular
        for inner, values in _turned(column).items():
            if _plain(set(map(type, values))):
                yield f"{name}.{inner}", values
    elif _plain(types):
        yield name, column


def _plain(types: set[type]) -> bool:
    """Return whether values are neither lists nor objects."""
    nested = types & {dict, list}
    if nested and nested != types:
        raise Irregular
    return not nested


def _turned(rows: Sequence[Mapping[str, object]]) -> dict[str, tuple[object, ...]]:
    """Objects with the same names in the same order, by name."""
    return dict(zip(rows[0], zip(*(row.values() for row in rows), strict=True), strict=True))


OK = "ok"
KEY = "key"
Found: TypeAlias = tuple[Entry, Where]


class RuledOut(Frozen):
    """A design that breaks limits of the device: when it was proposed, and the limits."""

    key: str
    at: float
    limits: tuple[str, ...]


class NewDesigns(NamedTuple):
    """New designs, one row each.

    Attributes:
        rung: of the evaluator of all of them.
        where: their entries in the log, (designs, 2).
        losses: (designs, objectives), to be minimised; NaN of designs that are not feasible or have not all of them.
    """

    keys: Sequence[str]
    rung: int
    where: NDArray[np.int64]
    columns: Columns
    losses: Floats


class Later(NamedTuple):
    """An entry about a design that others should be about already: of a higher rung, or once more."""

    entry: Record | Revaluation | Verification
    where: Where


Item: TypeAlias = NewDesigns | Later | RuledOut | Tick


class Intake:
    """Turns entries into items.

    Args:
        facts: what the run was made by.
        known: keys of the designs that there are rows of; whoever takes batches adds theirs.
    """

    def __init__(self, facts: RunInfo, known: Container[str]) -> None:
        self._facts, self._known = facts, known
        self._parts = MappingParts()

    def items(self, found: Iterable[Found]) -> Iterator[Item]:
        """Turn entries into items, in order. Entries that are no rows come out at once.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: for an entry that makes no sense, after all before it.
        """
        new: dict[str, tuple[Record, Where]] = {}
        try:
            for entry, where in found:
                if isinstance(entry, Record) and entry.evaluated:
                    key = entry.key
                    if not entry.rung and key not in self._known and key not in new:
                        new[key] = entry, where
                        continue
                if isinstance(entry, Tick):
                    yield entry
                elif isinstance(entry, Record) and not entry.evaluated:
                    limits = dict.fromkeys(str(v.get("constraint")) for v in entry.violations or ())
                    yield RuledOut(entry.key, entry.at, tuple(limits))
                elif isinstance(entry, Record | Revaluation | Verification):
                    yield from self._batches(new)
                    new.clear()
                    yield Later(entry, where)
        except NONSENSE:
            yield from self._batches(new)
            raise
        yield from self._batches(new)

    def _batches(self, new: dict[str, tuple[Record, Where]]) -> Iterator[NewDesigns]:
        """Designs that the run has not had before: together, or one by one where their structure differs."""
        if not new:
            return
        entries = [entry for entry, _ in new.values()]
        try:
            columns = columns_of(entries, self._parts, self._facts)
        except (Irregular, *NONSENSE):
            yield from (self.one(entry, where) for entry, where in new.values())
            return
        yield self._batch(list(new), entries, [where for _, where in new.values()], columns)

    def one(self, entry: Record, where: Where) -> NewDesigns:
        """A single design."""
        return self._batch([entry.key], [entry], [where], columns_of([entry], self._parts, self._facts))

    def cells(self, entry: Record) -> dict[str, tuple[Kind, object]]:
        """A design's columns, their kinds and values."""
        columns = columns_of([entry], self._parts, self._facts)
        return {name: (kind, listed(values)[0]) for name, (kind, values) in columns.items()}

    def _batch(self, keys: list[str], entries: list[Record], where: list[Where], columns: Columns) -> NewDesigns:
        values = [listed(columns[objective.name][1]) for objective in self._facts.objectives]
        losses = self.losses([entry.status for entry in entries], values)
        return NewDesigns(keys, entries[0].rung, np.array(where, np.int64), columns, losses)

    def losses(self, status: Sequence[object], values: Sequence[Sequence[object]]) -> Floats:
        """As a batch has them.

        Args:
            values: per objective, one per design.
        """
        objectives = self._facts.objectives
        losses = np.full((len(status), max(1, len(objectives))), np.nan)
        for number, (objective, column) in enumerate(zip(objectives, values, strict=True)):
            numbers = as_numbers(column)
            if numbers is None:
                numbers = np.array([v if is_number(v) else np.nan for v in column])
            losses[:, number] = objective.sign * numbers
        losses[np.isnan(losses).any(axis=1) | [s != OK for s in status]] = np.nan
        return losses
