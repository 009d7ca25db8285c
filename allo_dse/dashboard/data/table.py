"""A run as a table of its evaluated designs that grows with the log."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tune.front import Front, knee, pareto_positions
from ...tune.log import sensible
from .columns import Column, Floats, Kind, Mask
from .facts import RunFacts, read_facts
from .follow import Entry, LogFollower

Rows = NDArray[np.int64]
OK = "ok"


@dataclass(frozen=True)
class Verified:
    """What running a design and comparing its numbers showed."""

    ok: bool
    message: str
    seconds: float


@dataclass(frozen=True)
class RuledOut:
    """A design that breaks limits of the device: when it was proposed, and the limits."""

    at: float
    limits: tuple[str, ...]


@dataclass(frozen=True)
class Rung:
    """What one evaluator found out about a design.

    Attributes:
        number: 0 for the cheapest evaluator of the study.
        where: offset and length of the entry in the log.
    """

    number: int
    evaluator: str
    metrics: Mapping[str, Any]
    where: tuple[int, int]


@dataclass(frozen=True)
class Tick:
    """Running totals at a time: proposals that repeat an earlier one, and results taken from the cache."""

    at: float
    repeats: float
    cache_hits: float


class RunTable:
    """The evaluated designs of a run, one row each, in the order of the log.

    `refresh` reads what was added since; everything else is a view on what has been read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = LogFollower(path / "log.jsonl")
        self._generation = 0
        self._begin()

    def _begin(self) -> None:
        self.facts: RunFacts = read_facts(self.path)
        self.columns: dict[str, Column] = {}
        self.row_of: dict[str, int] = {}
        self.keys: list[str] = []
        self.verified: dict[str, Verified] = {}
        self.ruled_out: list[RuledOut] = []
        self.rungs: dict[str, list[Rung]] = {}
        self.ticks: list[Tick] = []
        self._volumes = array("d")
        self._first: list[list[float] | None] = []  # losses by the first evaluator, of designs it found feasible
        self._top = array("i")  # the highest rung that has measured a design
        self._front = Front(max(1, len(self.facts.objectives)))
        self._stale = False
        self._found: tuple[int, Rows] = (-1, np.zeros(0, np.int64))
        self.version = 0

    @property
    def name(self) -> str:
        return self.path.name

    def __len__(self) -> int:
        return len(self.keys)

    def refresh(self) -> bool:
        """Read what was added to the log; whether there was something."""
        entries = self.log.look()
        replaced = self.log.generation != self._generation
        if replaced:
            self._generation = self.log.generation
            before = self.version
            self._begin()
            self.version = before + 1
        with sensible(self.path / "log.jsonl"):
            for entry in entries:
                self._add(entry)
        for column in self.columns.values():
            column.settle()  # now, and not when somebody waits for a view
        self.version += len(entries)
        return replaced or bool(entries)

    def _add(self, entry: Entry) -> None:
        values = entry.values
        kind = values.get("type")
        if kind == "verify":
            self._stale |= not values["ok"] or values["key"] in self.verified
            self.verified[values["key"]] = Verified(bool(values["ok"]), str(values["message"]), values["seconds"])
        elif kind == "design" and values.get("status") == "violation":
            limits = tuple(dict.fromkeys(str(v.get("constraint")) for v in values.get("violations") or ()))
            self.ruled_out.append(RuledOut(float(values.get("at", 0.0)), limits))
        elif kind == "design":
            self._add_design(values, entry)
        elif kind == "values":
            self._revalue(values)
        elif kind == "tick":
            self.ticks.append(Tick(*(float(values.get(name, 0)) for name in ("at", "repeats", "cache_hits"))))

    def _add_design(self, values: dict[str, Any], entry: Entry) -> None:
        key = str(values["key"])
        rung = Rung(
            int(values.get("rung", 0)), str(values.get("evaluator", "")), values.get("metrics") or {}, entry.where
        )
        self.rungs.setdefault(key, []).append(rung)
        if key in self.row_of:
            self._promote(key, values, rung.number)
            return
        row = len(self.keys)
        self.row_of[key] = row
        self.keys.append(key)
        cells = dict(_cells(values, self.facts))
        for name, (kind, _) in cells.items():
            if name not in self.columns:
                self.columns[name] = Column(name, kind, missing=row)
        for name, column in self.columns.items():
            cell = cells.get(name)
            column.append(None if cell is None else cell[1])
        self._top.append(rung.number)
        self._count(key, values.get("status"), {name: value for name, (_, value) in cells.items()})

    def _promote(self, key: str, values: dict[str, Any], rung: int) -> None:
        """A dearer evaluator's numbers take the place of a cheaper one's."""
        row = self.row_of[key]
        self._top[row] = max(self._top[row], rung)
        for name, (kind, value) in _cells(values, self.facts):
            if value is None and kind != "meta":
                continue
            if name in ("number", "at", "seconds"):
                continue
            if name not in self.columns:
                self.columns[name] = Column(name, kind, missing=len(self.keys))
            self.columns[name].replace(row, value)

    def _revalue(self, values: dict[str, Any]) -> None:
        """Objectives that were changed between two runs in the same directory."""
        row = self.row_of.get(str(values.get("key")))
        if row is None:
            return
        stated = {"status": values.get("status"), **(values.get("values") or {})}
        for name, value in stated.items():
            if name in self.columns:
                self.columns[name].replace(row, value)
        self._first[row] = self._losses_of(values.get("status"), stated)
        self._stale = True

    def _losses_of(self, status: Any, values: Mapping[str, Any]) -> list[float] | None:
        """A design's objectives, to be minimised; None when it is not feasible or has not all of them."""
        found = [(o.sign, values.get(o.name)) for o in self.facts.objectives]
        if status != OK or not found or not all(isinstance(value, int | float) for _, value in found):
            return None
        return [sign * float(value) for sign, value in found if value is not None]

    def _count(self, key: str, status: Any, values: Mapping[str, Any]) -> None:
        """Take a design into the front and the hypervolume of the first evaluator."""
        losses = self._losses_of(status, values)
        self._first.append(losses)
        if losses is not None:
            self._front.add(key, losses)
        self._volumes.append(np.nan if self._front.hypervolume is None else self._front.hypervolume)

    def _settle(self) -> None:
        """Count front and hypervolume again after values have changed: by new objectives, or by a verification that
        found wrong numbers. Done when somebody asks, not per entry."""
        if not self._stale:
            return
        self._stale = False
        self._front = Front(max(1, len(self.facts.objectives)))
        wrong = {key for key, verification in self.verified.items() if not verification.ok}
        for row, (key, losses) in enumerate(zip(self.keys, self._first, strict=True)):
            if losses is not None and key not in wrong:
                self._front.add(key, losses)
            volume = self._front.hypervolume
            self._volumes[row] = np.nan if volume is None else volume

    # -- views --------------------------------------------------------------------------------------------------------

    def column(self, name: str) -> Column | None:
        return self.columns.get(name)

    def numbers(self, name: str) -> Floats:
        """A column's numbers; NaN throughout when there is no such column."""
        column = self.columns.get(name)
        return np.full(len(self), np.nan) if column is None else column.numbers

    @property
    def hypervolume(self) -> Floats:
        """The hypervolume after each row, by the first evaluator and by the objectives as they are now."""
        self._settle()
        return np.array(self._volumes)

    @property
    def objectives(self) -> list[str]:
        return [o.name for o in self.facts.objectives]

    @property
    def ok(self) -> Mask:
        """Per row, whether the design satisfies everything and did not compute wrong numbers."""
        column = self.columns.get("status")
        if column is None:
            return np.zeros(len(self), bool)
        good = column.codes == (column.categories.index(OK) if OK in column.categories else -2)
        for key, verification in self.verified.items():
            if not verification.ok and key in self.row_of:
                good[self.row_of[key]] = False
        return good

    @property
    def losses(self) -> Floats:
        """(rows, objectives), all to be minimised; NaN where a design has no value."""
        signs = np.array([o.sign for o in self.facts.objectives])
        return np.stack([self.numbers(name) for name in self.objectives], axis=1) * signs

    @property
    def front(self) -> Rows:
        """Rows of the Pareto front, best in the first objective first.

        Of the designs that the highest rung with a feasible one has measured: only those can be compared.
        """
        if self._found[0] != self.version:
            self._settle()
            losses, rows = self.losses, self.measured_rows
            if rows is None:
                rows = np.array([self.row_of[key] for key in self._front.keys], np.int64)
            else:
                rows = rows[pareto_positions(losses[rows])]
            self._found = self.version, rows[np.lexsort(losses[rows].T[::-1])] if len(rows) else rows
        return self._found[1]

    @property
    def measured_rows(self) -> Rows | None:
        """Feasible designs that the highest rung with any has measured; None while that is the first rung."""
        top = np.array(self._top)
        if not (top > 0).any():
            return None
        usable = self.ok & ~np.isnan(self.losses).any(axis=1) & (top > 0)
        return np.flatnonzero(usable & (top == top[usable].max())) if usable.any() else None

    @property
    def knee(self) -> int | None:
        """The row of the front with the best balance of all objectives."""
        front = self.front
        return int(front[knee(self.losses[front])]) if len(front) else None

    @property
    def first_feasible(self) -> int | None:
        """The row of the first design that satisfied everything: what one had before searching on."""
        rows = np.flatnonzero(self.ok)
        return int(rows[0]) if len(rows) else None

    @property
    def hypervolume_reference(self) -> dict[str, float] | None:
        """The hypervolume's reference point, in the objectives' own units."""
        self._settle()
        point = self._front.reference
        if point is None:
            return None
        return {o.name: o.sign * v for o, v in zip(self.facts.objectives, point, strict=True)}

    def record(self, row: int, rung: int = -1) -> dict[str, Any]:
        """A design's entry in the log: the last of its rungs, or the one at a position among them."""
        return self.log.read(*self.rungs[self.keys[row]][rung].where)

    def names(self, *kinds: Kind, varying: bool = False, numeric: bool = False) -> list[str]:
        """Columns of some kinds (all without any), those that differ between designs, and those that are numbers."""
        return [
            name
            for name, column in self.columns.items()
            if (not kinds or column.kind in kinds)
            and (not varying or column.varies)
            and (not numeric or column.numeric)
        ]


def _cells(values: dict[str, Any], facts: RunFacts) -> Iterator[tuple[str, tuple[Kind, Any]]]:
    """What a record says, flat: column, its kind and its value. Later ones of the same name give way to earlier."""
    metrics = values.get("metrics") or {}
    stated = values.get("values") or {}
    taken = {"number", "key", "status", "at", "seconds", "evaluator", "worker", "cached", "reason"}
    for objective in facts.objectives:
        value = stated.get(objective.name, metrics.get(objective.name))
        taken.add(objective.name)
        yield objective.name, ("objective", value)
    for name, value in (values.get("params") or {}).items():
        if name not in taken:
            taken.add(name)
            yield name, ("parameter", value)
    for name, value in _mapping(values):
        yield name, ("mapping", value)
    for name, value in metrics.items():
        if name in taken:
            continue
        if isinstance(value, dict):
            for part, amount in value.items():
                if not isinstance(amount, dict | list):
                    yield f"{name}.{part}", ("metric", amount)
        elif not isinstance(value, list):
            yield name, ("metric", value)
    for name in ("number", "key", "status", "at", "seconds", "evaluator", "worker", "cached"):
        if values.get(name) is not None:
            yield name, ("meta", values[name])
    yield "reason", ("meta", _reason(values))


def _reason(values: dict[str, Any]) -> str | None:
    """Why a design is not feasible, in a few words: constraints by name, failures by kind."""
    if values.get("status") == "infeasible":
        return ", ".join(name for name, v in (values.get("constraints") or {}).items() if v > 0) or "infeasible"
    if values.get("status") == "failed":
        return str(values.get("error") or "failed").split(":")[0][:60]
    return None


def _mapping(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """How the program is mapped: the fold of each kernel axis, buffers, and whatever else decides a design."""
    fold = values.get("fold")
    kernels = fold.get("kernels", []) if isinstance(fold, dict) else []
    for kernel in kernels:
        for position, axis in enumerate(kernel.get("axes", ())):
            prefix = f"{kernel.get('kernel')}.axis{position}"
            for part in ("spatial", "how", "pattern"):
                if part in axis:
                    yield f"{prefix}.{part}" if part != "spatial" else f"{prefix}.nodes", axis[part]
        if kernel.get("order"):
            yield f"{kernel.get('kernel')}.order", " ".join(map(str, kernel["order"]))
    for part in ("buffering", "schedule", "depths"):
        entries = values.get(part)
        if isinstance(entries, dict):
            prefix = "" if part == "buffering" else f"{part}."
            for name, value in entries.items():
                if not isinstance(value, dict | list):
                    yield f"{prefix}{name}", value
        elif isinstance(entries, list):
            yield from _directives(entries)


def _directives(directives: list[str]) -> Iterator[tuple[str, Any]]:
    """A column per directive, its options as the value: `pipeline(mm:k, initiation_interval=2)` is 2 in pipeline.mm.k.

    A second directive of the same kind and target, such as a partition of another dimension, is added to the first.
    """
    found: dict[str, list[str]] = {}
    for directive in directives:
        head, _, options = directive.removesuffix(")").partition(", ")
        values = ", ".join(option.partition("=")[2] for option in options.split(", "))
        found.setdefault(head.replace("(", ".", 1).replace(":", ".", 1), []).append(values)
    for name, said in found.items():
        yield name, int(said[0]) if len(said) == 1 and said[0].isdecimal() else "; ".join(said)
