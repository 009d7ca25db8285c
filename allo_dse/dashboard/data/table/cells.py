"""A design's entry, flattened to one cell per column. Equal texts of parts are parsed only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from allo_dse.tune.results.choices import TEXTS, mapping_choices
from allo_dse.tune.store.record import NOTHING, Record, json_value, json_values
from allo_dse.tune.store.run_info import RunInfo
from allo_dse.tune.store.texts import failure_kind

from .columns import Kind, Repeated

META = ("number", "key", "status", "at", "seconds", "evaluator", "worker", "cached")
_ABSENT = bytes(NOTHING)
_MAPPING = TEXTS[1:]
_TEXTS = tuple(attrgetter(f"{name}_json") for name in _MAPPING)
MAX_PARTS = 50_000
"""Texts that are remembered at once."""


class Part(NamedTuple):
    """Columns that a part of a mapping fills, and what with.

    Attributes:
        shape: a number that is the same for all parts with these names.
    """

    names: tuple[str, ...]
    values: tuple[object, ...]
    shape: int

    @property
    def cells(self) -> Iterator[tuple[str, object]]:
        return zip(self.names, self.values, strict=True)


class Parts:
    """Parts of the mappings of designs: many designs share each."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], int] = {}
        self._known: tuple[dict[bytes, Part], ...] = tuple({} for _ in _MAPPING)

    def mapping(self, entries: Sequence[Record]) -> list[Repeated[Part]]:
        """Per text of a mapping the parts of some designs.

        Raises:
            TypeError, AttributeError, ValueError: when a text says something else than a description of a design.
        """
        return [self._column(number, list(map(text, entries))) for number, text in enumerate(_TEXTS)]

    def _column(self, number: int, raw: list[msgspec.Raw]) -> Repeated[Part]:
        known = self._known[number]
        if len(known) >= MAX_PARTS:
            known.clear()
        texts = Repeated.among([_ABSENT if text is NOTHING else bytes(text) for text in raw])
        for text in set(texts.few) - known.keys():
            pairs = mapping_choices(_MAPPING[number], json_value(msgspec.Raw(text)))
            names = tuple(name for name, _ in pairs)
            shape = self._shapes.setdefault(names, len(self._shapes))
            known[text] = Part(names, tuple(value for _, value in pairs), shape)
        return Repeated([known[text] for text in texts.few], texts.which)


def cells(entry: Record, parts: Parts, facts: RunInfo) -> dict[str, tuple[Kind, object]]:
    """A design's columns, their kinds and values. Of several with one name the last holds, where the first stands."""
    return dict(_cells(entry, parts, facts))


def _cells(entry: Record, parts: Parts, facts: RunInfo) -> Iterator[tuple[str, tuple[Kind, object]]]:
    metrics, stated = entry.metrics or {}, entry.values or {}
    for objective in facts.objectives:
        yield objective.name, ("objective", stated.get(objective.name, metrics.get(objective.name)))
    (said,) = parameters([entry])
    taken = fixed_names(facts)
    yield from ((name, ("parameter", value)) for name, value in said.items() if name not in taken)
    for part in parts.mapping([entry]):
        yield from ((name, ("mapping", value)) for name, value in part.few[0].cells)
    for name, value in metrics.items():
        if name in taken or name in said:
            continue
        if isinstance(value, dict):
            for inner, amount in value.items():
                if not isinstance(amount, dict | list):
                    yield f"{name}.{inner}", ("metric", amount)
        elif not isinstance(value, list):
            yield name, ("metric", value)
    yield from ((name, ("meta", value)) for name, (value,) in meta([entry]).items() if value is not None)
    yield "reason", ("meta", reason(entry))


def meta(entries: Sequence[Record]) -> dict[str, Sequence[Any]]:
    """Return the entries' own fields by the names in `META`; None where a field is empty."""
    said = {name: list(map(attrgetter(name), entries)) for name in META}
    return said | {name: [value or None for value in said[name]] for name in ("evaluator", "worker", "cached")}


def parameters(entries: Sequence[Record]) -> list[dict[str, object]]:
    """Parameters of designs."""
    return [said or {} for said in json_values([entry.params_json for entry in entries])]


def fixed_names(facts: RunInfo) -> frozenset[str]:
    """Names of columns that every design has: parameters and metrics of these names are not shown."""
    return frozenset((*META, "reason", *(o.name for o in facts.objectives)))


def reason(entry: Record) -> str | None:
    """Why a design is not feasible, in a few words: constraints by name, failures by kind."""
    if entry.status == "infeasible":
        return ", ".join(name for name, v in (entry.constraints or {}).items() if v > 0) or "infeasible"
    if entry.status == "failed":
        return failure_kind(entry.error)
    return None
