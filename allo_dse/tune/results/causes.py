"""Causes that rule out designs, with the choices and values most associated with them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, islice
from pathlib import Path
from typing import Any

import msgspec

from allo_dse.common.records import Frozen, JsonObject, replace

from ..store.log import sealed
from ..store.record import Record, decode_entry, json_value
from ..store.run_info import failure_kind
from ..store.rundir import LOG

# Choices of a design, flat: one named value per parameter, axis, buffer and directive.


TEXTS = ("params", "fold", "buffering", "schedule", "depths")
"""Fields of a record that describe its design. Many designs share the same text."""


def choices_of(record: Record) -> dict[str, object]:
    """Everything that was chosen of a design, by name."""
    texts = (record.fold_json, record.buffering_json, record.schedule_json, record.depths_json)
    mapped = (_known_choices(part, bytes(text)) for part, text in zip(TEXTS[1:], texts, strict=True))
    found = {**record.params, **{name: value for pairs in mapped for name, value in pairs}}
    return {name: str(value) if isinstance(value, list | dict) else value for name, value in found.items()}


@lru_cache(maxsize=4096)
def _known_choices(part: str, text: bytes) -> tuple[tuple[str, object], ...]:
    return tuple(mapping_choices(part, json_value(msgspec.Raw(text))))


def by_choice(chosen: Sequence[Mapping[str, object]], absent: Hashable = None) -> dict[str, list[Any]]:
    """Return the value of each choice in every design; `absent` in designs that do not make it."""
    names = dict.fromkeys(name for choices in chosen for name in choices)
    return {name: [choices.get(name, absent) for choices in chosen] for name in names}


def mapping_choices(part: str, value: object) -> list[tuple[str, object]]:
    """Return the named choices of one part of the mapping, such as the fold of each kernel axis or the buffers."""
    if part == "fold":
        if not isinstance(value, dict):
            return []
        chains = ((f"{kernel}.with", " ".join(chain)) for chain in value.get("chains", []) for kernel in chain)
        return [*_fold(value.get("kernels", [])), *chains]
    if isinstance(value, dict):
        prefix = "" if part == "buffering" else f"{part}."
        return [(f"{prefix}{name}", inner) for name, inner in value.items() if not isinstance(inner, dict | list)]
    return list(_directives(value)) if isinstance(value, list) else []


def _fold(kernels: list[JsonObject]) -> Iterator[tuple[str, object]]:
    for kernel in kernels:
        for position, axis in enumerate(kernel.get("axes", ())):
            prefix = f"{kernel.get('kernel')}.axis{position}"
            for part in ("spatial", "how", "pattern"):
                if part in axis:
                    yield f"{prefix}.{part}" if part != "spatial" else f"{prefix}.nodes", axis[part]
        if kernel.get("order"):
            yield f"{kernel.get('kernel')}.order", " ".join(map(str, kernel["order"]))


def _directives(directives: list[str]) -> Iterator[tuple[str, object]]:
    """A column per directive, its options as the value: `pipeline(mm:k, initiation_interval=2)` is 2 in pipeline.mm.k.

    A second directive of the same kind and target, such as a partition of another dimension, is added to the first.
    """
    found: dict[str, list[str]] = {}
    for directive in directives:
        head, _, options = directive.removesuffix(")").partition(", ")
        values = ", ".join(option.partition("=")[2] for option in options.split(", "))
        found.setdefault(head.replace("(", ".", 1).replace(":", ".", 1), []).append(values)
    for name, texts in found.items():
        yield name, int(texts[0]) if len(texts) == 1 and texts[0].isdecimal() else "; ".join(texts)


MOST_LOOKED_AT = 10_000  # lines of a log to read
FEWEST_RULED_OUT = 5  # fewest designs with one cause for which a choice is named
MOST_VALUES = 3  # values of a choice to name
ABSENT = "none"  # value of a choice that a design does not make
LEAST_INFORMATION = 0.05  # least mutual information of a choice, as a share of the cause's entropy


class Cause(Frozen):
    """Reason why designs were ruled out, and the choice most associated with it.

    Attributes:
        name: name of a limit, a constraint, or a kind of failure.
        count: designs ruled out by it, among `looked_at`.
        choice: a parameter of the program or a part of the mapping; "" if none says much.
        values: values of the choice that are ruled out most often, with the share ruled out.
    """

    name: str
    count: int
    looked_at: int
    choice: str = ""
    values: tuple[tuple[object, float], ...] = ()

    @property
    def share(self) -> float:
        return self.count / self.looked_at

    @property
    def worst_values(self) -> str:
        """The values that it strikes most, in words."""
        return ", ".join(f"{self.choice}={value} ({100 * share:.0f} %)" for value, share in self.values)

    def __str__(self) -> str:
        mostly = f": {self.worst_values}" if self.worst_values else ""
        return f"{self.name} rules out {self.count:,} of {self.looked_at:,} designs{mostly}"


def causes_in(run_dir: Path) -> list[Cause]:
    """Return the causes in the first lines of a run's log."""
    with (run_dir / LOG).open("rb") as log:
        lines = [line.removesuffix(b"\n") for line in islice(log, MOST_LOOKED_AT)]
    entries = (decode_entry(line) for line in lines if sealed(line))
    return causes_of(entry for entry in entries if isinstance(entry, Record) and not entry.rung)


def causes_of(records: Iterable[Record]) -> list[Cause]:
    """Return the causes that rule out designs, the most frequent first.

    A design that breaks several limits counts for each. Each cause names the choice with the largest mutual
    information, less its expectation by chance (half a nat per further value and design: G. Miller, 1955).
    """
    reasons, chosen = [], []
    for record in records:
        reasons.append(reasons_against(record))
        chosen.append(choices_of(record))
    columns = by_choice(chosen, ABSENT)
    counts = Counter(name for names in reasons for name in names)
    causes = sorted(counts, key=lambda name: (-counts[name], name))
    return [_cause(cause, [cause in names for names in reasons], columns) for cause in causes]


def reasons_against(record: Record) -> set[str]:
    """The limits or constraints that a design breaks, or how its evaluation failed."""
    if record.status == "violation":
        return {found["constraint"] for found in record.violations or ()}
    if record.status == "infeasible":
        return {name for name, amount in (record.constraints or {}).items() if amount > 0}
    return {failure_kind(record.error)} if record.status == "failed" else set()


def _cause(name: str, ruled_out: Sequence[bool], columns: Mapping[str, Sequence[object]]) -> Cause:
    """Return a cause with the choice most associated with it.

    Args:
        ruled_out: whether each design was ruled out by it.
        columns: value in each design, by choice.
    """
    alone = Cause(name, sum(ruled_out), len(ruled_out))
    tables = {choice: _shares(column, ruled_out) for choice, column in columns.items()}
    # Mutual information of a choice and the cause in nats, less its bias.
    information = {
        choice: _entropy(alone.share)
        - sum(number * _entropy(share) for number, share in table.values()) / alone.looked_at
        - (len(table) - 1) / (2 * alone.looked_at)
        for choice, table in tables.items()
    }
    best = max(information, key=lambda choice: information[choice], default="")
    if alone.count < FEWEST_RULED_OUT or not best or information[best] <= LEAST_INFORMATION * _entropy(alone.share):
        return alone
    worse = [(value, share) for value, (_, share) in tables[best].items() if share > alone.share]
    worse.sort(key=lambda one: (-one[1], str(one[0])))
    return replace(alone, choice=best, values=tuple(worse[:MOST_VALUES]))


def _shares(column: Sequence[object], ruled_out: Sequence[bool]) -> dict[object, tuple[int, float]]:
    """Return, for each value, how often it was chosen and the share that was ruled out."""
    counts = Counter(compress(column, ruled_out))
    return {value: (number, counts[value] / number) for value, number in Counter(column).items()}


def _entropy(share: float) -> float:
    """Entropy in nats."""
    return -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)
