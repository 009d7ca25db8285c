"""The columns of many designs at once: designs that say the same things in the same order are turned by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allo_dse.tune.store.record import Record
from allo_dse.tune.store.run_info import RunInfo

from .cells import Part, Parts, fixed_names, meta, parameters, reason
from .columns import Kind, Repeated, Values, listed

Columns = dict[str, tuple[Kind, Values]]


class Irregular(Exception):
    """Designs whose metrics have the same names, but not the same structure."""


def columns_of(entries: Sequence[Record], parts: Parts, facts: RunInfo) -> Columns:
    """Return the cells of several designs by column; None where a design has no value.

    Columns stand in the order in which the designs, one after the other, would bring them up, with the kind they have
    in the first that does.

    Raises:
        Irregular: then they have to be taken one by one.
        TypeError, AttributeError, ValueError: if one of them is no description of a design.
    """
    chosen, mapping, said = parameters(entries), parts.mapping(entries), meta(entries)
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
    mapping: Sequence[Repeated[Part]],
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
    mapping: Sequence[Repeated[Part]],
    said: Mapping[str, Sequence[object]],
    facts: RunInfo,
) -> Iterator[tuple[str, tuple[Kind, Values]]]:
    """The columns of designs of one shape."""
    metrics = _turned([entry.metrics or {} for entry in entries])
    stated = _turned([entry.values or {} for entry in entries])
    absent = (None,) * len(entries)
    for objective in facts.objectives:
        yield objective.name, ("objective", stated.get(objective.name, metrics.get(objective.name, absent)))
    taken = fixed_names(facts)
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
    """A metric, or what is in it, unless it is a list."""
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
