"""The columns of many designs at once: designs that say the same things in the same order are turned by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allo_dse.tune.store.record import Record
from allo_dse.tune.store.run_info import RunInfo

from .cells import META, Part, Parts, meta, not_metrics, reason
from .columns import Kind

Columns = dict[str, tuple[Kind, Sequence[object]]]


class Irregular(Exception):
    """Designs whose metrics have the same names, but not the same structure."""


def columns_of(entries: Sequence[Record], parts: Parts, facts: RunInfo) -> Columns:
    """What `cells` says of each of some designs, by column; None where it says nothing.

    Columns stand in the order in which the designs, one after the other, would bring them up, with the kind they have
    in the first that does.

    Raises:
        Irregular: then they have to be taken one by one.
        TypeError, AttributeError, ValueError: if one of them is no description of a design.
    """
    described = parts.of(entries)
    groups = _groups(entries, described)
    if len(groups) == 1:
        return _group(entries, described, facts)
    whole: dict[str, tuple[Kind, list[object]]] = {}
    for members in groups:
        own = [[column[i] for i in members] for column in described]
        for name, (kind, values) in _group([entries[i] for i in members], own, facts).items():
            column = whole.setdefault(name, (kind, [None] * len(entries)))[1]
            for position, value in zip(members, values, strict=True):
                column[position] = value
    return {**whole}


def _groups(entries: Sequence[Record], parts: Sequence[Sequence[Part]]) -> list[Sequence[int]]:
    """Positions of designs that fill the same columns in the same order, as far as names tell."""
    traits: list[list[object]] = [[part.shape for part in column] for column in parts]
    traits += [[tuple(e.metrics or ()) for e in entries], [tuple(e.values or ()) for e in entries]]
    for name in META:
        said = meta(entries, name)
        if 0 < said.count(None) < len(said):
            traits.append([value is None for value in said])
    telling = [values for values in traits if len(set(values)) > 1]
    if not telling:
        return [range(len(entries))]
    groups: dict[object, list[int]] = {}
    for position, shape in enumerate(zip(*telling, strict=True)):
        groups.setdefault(shape, []).append(position)
    return list(groups.values())


def _group(entries: Sequence[Record], parts: Sequence[Sequence[Part]], facts: RunInfo) -> Columns:
    """The columns of designs of one shape."""
    return dict(_columns(entries, parts, facts))


def _columns(
    entries: Sequence[Record], parts: Sequence[Sequence[Part]], facts: RunInfo
) -> Iterator[tuple[str, tuple[Kind, Sequence[object]]]]:
    metrics = _turned([entry.metrics or {} for entry in entries])
    stated = _turned([entry.values or {} for entry in entries])
    absent = (None,) * len(entries)
    for objective in facts.objectives:
        yield objective.name, ("objective", stated.get(objective.name, metrics.get(objective.name, absent)))
    for number, own in enumerate(parts):
        kind: Kind = "mapping" if number else "parameter"
        values = zip(*(part.values for part in own), strict=True)
        yield from ((name, (kind, column)) for name, column in zip(own[0].names, values, strict=True))
    taken = not_metrics(parts[0][0], facts)
    for name, column in metrics.items():
        if name not in taken:
            yield from ((name, ("metric", values)) for name, values in _metric(name, column))
    for name in META:
        if (said := meta(entries, name))[0] is not None:
            yield name, ("meta", said)
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
    """Whether values are neither lists nor objects."""
    nested = types & {dict, list}
    if nested and nested != types:
        raise Irregular
    return not nested


def _turned(rows: Sequence[Mapping[str, object]]) -> dict[str, tuple[object, ...]]:
    """Objects with the same names in the same order, by name."""
    return dict(zip(rows[0], zip(*(row.values() for row in rows), strict=True), strict=True))
