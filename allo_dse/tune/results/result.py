"""Result of a run, as data frames and as designs to build."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.quoting import csv_lines, html_text
from allo_dse.common.records import Frozen, JsonObject, replace
from allo_dse.eval.calibrate.correction import LATENCY, Correction
from allo_dse.eval.evaluator import total_cost
from allo_dse.space.sampler.pareto import pareto_positions

from ..declare.spec import StudySpec
from ..search.pareto_front import knee
from ..search.tally import Designs
from ..store.certificate import Certificate
from ..store.log import RunLog
from ..store.record import Measurement, PlacementNote, Record, Verification, entry_dict
from ..store.run_info import failures_by_kind, read_info
from ..store.rundir import RunDirectory
from .best import BestDesign, Front
from .causes import Cause, by_choice, causes_in, choices_of
from .explain import near_words
from .importance import importances, weighed

if TYPE_CHECKING:
    import optuna
    import pandas

    from allo_dse.space.genes import Genes


class RungFailures(Frozen):
    """Failures of designs that were promoted to an evaluator.

    Attributes:
        promoted: number of promoted designs.
        errors: reasons of failures, with counts.
    """

    evaluator: str
    promoted: int
    errors: Counter[str]

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def measured_nothing(self) -> bool:
        return self.failed == self.promoted

    def __str__(self) -> str:
        why = "; ".join(f"{count} x {error}" for error, count in self.errors.most_common(3))
        return f"{self.evaluator} failed for {self.failed} of {self.promoted} designs, which are left out: {why}"


def failure_words(result: Result) -> str:
    """Describe how many designs failed and why, with a hint; "" if none did."""
    found = result.failures
    if not found:
        return ""
    why = "; ".join(f"{count} x {error}" for error, count in found.most_common(3))
    more = f"; {len(found) - 3} other reasons" if len(found) > 3 else ""
    return (
        f"{found.total()} of {len(result.records)} designs failed (each in trials.csv; `allo-tune replay ID` evaluates "
        f"one again): {why}{more}"
    )


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of `Study.run`.

    Attributes:
        records: every evaluated design.
        values: objective values of feasible designs, by key.
        verified: comparisons with the reference, by key.
        placed: placements on the device's array, or reasons for failures, by key.
        stopped: why the run ended: "trials", "time", "target", "patience", "gap", "exhausted", "Ctrl-C" or "SIGTERM".
        run_dir: directory of the log and the tables.
        correction: correction of predictions by measurements.
        certificate: decisions about the space, if the sampler decides designs without evaluating them.
        limits: number of designs that each limit of the device ruled out before evaluation.
        enqueued: genes of the designs that the study began with.
    """

    study: StudySpec
    records: Designs
    values: Mapping[str, tuple[float, ...]]
    verified: Mapping[str, Verification]
    stopped: str
    run_dir: Path
    placed: Mapping[str, PlacementNote] = field(default_factory=dict)
    correction: Correction = field(default_factory=Correction)
    certificate: Certificate | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    enqueued: Sequence[Genes] = ()

    @property
    def baseline(self) -> BestDesign | None:
        """The first enqueued design, with which others are compared."""
        for genes in self.enqueued[:1]:
            known = next((r for r in self.records if r.genes == genes and r.key in self.values), None)
            if known is not None:
                return BestDesign(self.study, known, self.run_dir, verification=self.verified.get(known.key))
        return None

    @property
    def against_baseline(self) -> str:
        """Describe the best value of each objective relative to the baseline; "" without one."""
        if self.baseline is None or not self.front:
            return ""
        there = self.baseline.values
        parts = [f"{name} {self.best(name).values[name] / there[name]:.3g} x" for name in there if there[name]]
        return f"best over baseline {self.baseline.key[:8]}: {', '.join(parts)}"

    @property
    def ruled_out(self) -> dict[str, int]:
        """Number of designs that each limit and constraint ruled out, and of failures; most frequent first."""
        failed = {"evaluator failed": self.failures.total()} if self.failures else {}
        return dict((Counter(self.limits) + Counter(self.unmet) + Counter(failed)).most_common())

    @cached_property
    def causes(self) -> list[Cause]:
        """Causes that rule out designs, each with the choice most associated with it."""
        return causes_in(self.run_dir)

    @property
    def importances(self) -> dict[str, float]:
        """Share of each parameter and part of the mapping in reaching good values of the first objective.

        Shares add up to 1; empty if there is too little data. PED-ANOVA (S. Watanabe, A. Bansal and F. Hutter, 2023, as
        Optuna computes it) of at most 1,000 feasible designs.
        """
        keys = self._usable
        looked_at = [keys[position] for position in weighed(len(keys))]
        columns = by_choice([choices_of(self.records.by_key(key)) for key in looked_at])
        return importances(columns, [float(losses[0]) for losses in self._losses(looked_at)])

    def __repr__(self) -> str:
        counts = f"{len(self.records):,} designs, {len(self.front)} on the front"
        return f"Result({self.study.name!r}, {counts}, {self.run_dir})"

    def _repr_html_(self) -> str:
        """The front, in a notebook."""
        return f"<p>{html_text(repr(self))}</p>{self.front._repr_html_()}"

    @property
    def unverified(self) -> int:
        """Number of designs on the front that were not run and compared with the reference."""
        return sum(design.key not in self.verified for design in self.front)

    @property
    def wrong(self) -> list[str]:
        """Keys of designs that computed wrong numbers; they are not on the front."""
        return [key for key, verification in self.verified.items() if not verification.ok]

    @property
    def rung_failures(self) -> list[RungFailures]:
        """Failures of evaluators above the first, the cheapest first; such designs are not on the front."""
        given: dict[tuple[int, str], list[Measurement]] = {}
        for _, record in sorted(self.records.promoted.items()):
            for one in record.measurements:
                if one.rung:
                    given.setdefault((one.rung, one.evaluator), []).append(one)
        found = [
            RungFailures(evaluator, len(ones), failures_by_kind(one.error for one in ones if one.metrics is None))
            for (_, evaluator), ones in sorted(given.items(), key=lambda item: item[0])
        ]
        return [one for one in found if one.failed]

    @property
    def failures(self) -> Counter[str]:
        """Why the evaluator of every design failed, and how often."""
        return failures_by_kind(r.error for r in self.records.with_status("failed") if not r.rung)

    @property
    def unmet(self) -> dict[str, int]:
        """Constraints by how many evaluated designs break them."""
        infeasible = self.records.with_status("infeasible")
        broken = Counter(n for r in infeasible for n, amount in (r.constraints or {}).items() if amount > 0)
        return dict(broken.most_common())

    @cached_property
    def optuna_study(self) -> optuna.Study:
        """All evaluated designs as trials of a study of Optuna in memory, whose `best_trials` are the front; keys,
        metrics and errors are user attributes."""
        from .optuna_trials import states_of, study_in_memory  # imported late: Optuna is slow to import

        return study_in_memory(self.study, self.records, states_of(self.values, self.wrong, self.front_keys))

    @property
    def _usable(self) -> list[str]:
        """Keys of designs that satisfy everything, and are not known to compute something else than they should."""
        wrong = set(self.wrong)
        return [key for key in self.values if key not in wrong]

    @cached_property
    def front(self) -> Front:
        """The designs on the Pareto front, best in the first objective first.

        Of designs with equal objective values, the one with less time and resources in all other metrics.
        """
        keys = self._usable
        if not keys:
            return Front()
        losses = self._losses(keys)
        within = np.flatnonzero((losses <= [o.most_loss for o in self.study.objectives]).all(1))
        left = within if len(within) else np.arange(len(keys))
        best = left[pareto_positions(losses[left])]
        left = left[np.isin(losses[left, 0], losses[best, 0])]  # with all that may equal them
        records = [self.records.by_key(keys[position]) for position in left.tolist()]
        costs = np.array([total_cost(record.metrics or {}) for record in records])
        positions = sorted(pareto_positions(losses[left], costs), key=lambda p: tuple(losses[left[p]]))
        return Front(
            BestDesign(self.study, one, self.run_dir, verification=self.verified.get(one.key))
            for one in (records[p] for p in positions)
        )

    @property
    def front_keys(self) -> list[str]:
        """Keys of the designs on the front."""
        return [design.key for design in self.front]

    @cached_property
    def knee(self) -> BestDesign | None:
        """The design of the front with the best balance of all objectives."""
        return self.front[knee(self._losses(self.front_keys))] if self.front else None

    def best(self, objective: str | None = None) -> BestDesign:
        """The best design in one objective (by default the first); ties are broken by the other objectives.

        Raises:
            StudyError: for an unknown objective, or when no design satisfies everything.
        """
        names = [o.name for o in self.study.objectives]
        name = names[0] if objective is None else objective
        if name not in names:
            raise StudyError(f"no objective {name!r}", hint=f"{did_you_mean(name, names)}one of {', '.join(names)}")
        if not self.front:
            raise StudyError("no design satisfies all limits and constraints", hint=self._why_none())
        position = names.index(name)
        losses = self._losses(self.front_keys)
        order = [position, *(i for i in range(len(names)) if i != position)]
        found = min(zip(self.front, losses, strict=True), key=lambda pair: tuple(pair[1][order]))[0]
        if name != LATENCY:
            return found
        times = (values[position] for values in self.values.values())
        return replace(found, near=near_words(found.record.metrics or {}, times))

    def _why_none(self) -> str:
        if self.failures:
            return failure_words(self)
        broken = "; ".join(f"{count} break {name!r}" for name, count in list(self.unmet.items())[:3])
        return f"loosen the constraints, or widen the parameters{f': {broken}' if broken else ''}"

    def _losses(self, keys: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
        signs = np.array([o.sign for o in self.study.objectives])
        values = np.array([self.values[key] for key in keys], float).reshape(-1, len(signs))
        found: np.ndarray[Any, np.dtype[np.float64]] = values * signs
        return found

    @cached_property
    def trials(self) -> pandas.DataFrame:
        """One row per evaluated design, in the order of the results."""
        return self._frame(self.records)

    @cached_property
    def pareto(self) -> pandas.DataFrame:
        """One row per design on the front, best in the first objective first."""
        return self._frame([d.record for d in self.front])

    def _frame(self, records: Sequence[Record]) -> pandas.DataFrame:
        import pandas

        columns, rows = self.table(records)
        return pandas.DataFrame(rows, columns=pandas.Index(columns))

    def verify(self) -> Result:
        """Return the result with its front verified, as at the end of a run; verdicts go to its log and tables.

        Raises:
            StudyError: when another process uses the run directory, or the run was of another program or device.
        """
        info, result = read_info(self.run_dir), self
        program, device = self.study.fingerprint()
        with closing(RunDirectory(self.run_dir)) as directory, closing(RunLog(directory.log)) as log:
            directory.begin(replace(info, program=program, device=device))
            while pending := [design for design in result.front if design.key not in result.verified]:
                for design in pending:
                    found = replace(self.study.verify(design.design, info.seed), key=design.key)
                    log.append([entry_dict(found)])
                    result = replace(result, verified={**result.verified, design.key: found})
            return result.written(directory, self.certificate)

    def written(self, directory: RunDirectory, certificate: Certificate | None) -> Result:
        """Write `trials.csv` and `pareto.csv`, and what is decided about the space, which the result then has."""
        directory.write("trials.csv", csv_lines(*self.table(self.records)))
        directory.write("pareto.csv", csv_lines(*self.table([d.record for d in self.front])))
        if certificate is None:
            return self
        directory.certify(certificate := replace(certificate, wrong=len(self.wrong)))
        return replace(self, certificate=certificate)

    def table(self, records: Sequence[Record]) -> tuple[list[str], Iterator[list[object]]]:
        """Return columns that describe some records, and a row for each; None for missing cells."""
        alike = {(*r.params, *(r.buffering or ()), *(r.metrics or ())): r for r in records}
        named = dict.fromkeys(name for record in alike.values() for name in self._row(record))
        columns = list(named) or ["number", "key", "status"]
        return columns, (list(map(self._row(record).get, columns)) for record in records)

    def _row(self, record: Record) -> JsonObject:
        row: JsonObject = {"number": record.number, "key": record.key, "status": record.status}
        values = self.values.get(record.key)
        for position, objective in enumerate(self.study.objectives):
            row[objective.name] = None if values is None else values[position]
        row |= {**record.params, **row}  # of equal names the first counts
        row["fold"] = bytes(record.fold_json).decode()
        buffering = record.buffering
        if isinstance(buffering, Mapping):
            row |= {**buffering, **row}
        for name, value in (record.metrics or {}).items():
            row.setdefault(name, json.dumps(value) if isinstance(value, dict | list) else value)
        verification = self.verified.get(record.key)
        row["verified"] = None if verification is None else verification.verdict
        note = self.placed.get(record.key)
        row["placed"] = None if note is None else ("yes" if note.ok else f"no: {note.reason}")
        row["evaluator"] = record.measured_by
        row["error"] = record.error
        return row
