"""Proposing and evaluating designs of an earlier run again: one, or all that its log holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.records import Frozen, JsonObject
from allo_dse.eval.calibrate.correction import uncorrected
from allo_dse.eval.evaluator import full_name, why_unavailable
from allo_dse.space.space import Candidate

from .declare.spec import StudySource, StudySpec
from .results.result import Result
from .run.reproposal import Reproposal, propose_again
from .run.restore import read_history
from .search.scoring import Scorer
from .search.screening import FOLDING_RULES, Screen
from .search.tally import Tally
from .store.log import Log, sensible
from .store.record import Measurement, Record, Verification, decode_entry
from .store.run_info import RunInfo, read_info
from .store.rundir import LOG, find_run
from .workers.evaluate_one import RungEvaluator, make_rung_evaluator

# The result of a run that was made earlier, or elsewhere.


def open_run(path: str | Path | None = None, *, study: StudySpec | str | Path | None = None) -> Result:
    """Return the result of a run from its directory: front, best designs, tables. Nothing is evaluated.

    The study file is executed to rebuild designs.

    Args:
        path: run directory; by default the newest in `runs`.
        study: the study itself, if the run was started from Python; or the new path of a study file that was moved.

    Raises:
        StudyError: if it is not a run directory, or its study is not known.
    """
    directory = find_run(None if path is None else Path(path))
    info = read_info(directory)
    spec = study if isinstance(study, StudySpec) else study_of(info, None if study is None else Path(study), directory)
    scorer, tally = Scorer(spec.objectives, spec.constraints), Tally(spec.objectives)
    names = [full_name(evaluator) for evaluator in spec.make_evaluators()]
    log = directory / LOG
    with sensible(log):
        screen = Screen(spec.space, spec.check)
        history = read_history(Log(log), scorer, screen, names)
        history.count(tally, scorer)
    return Result(
        spec,
        tally.records,
        tally.final_values,
        history.verified,
        stopped="",
        run_dir=directory,
        placed=history.placed,
        correction=history.correction,
        certificate=info.certificate,
        limits=dict(screen.killed),
        enqueued=history.enqueued,
    )


def study_of(info: RunInfo, study_file: Path | None, path: Path) -> StudySpec:
    """The study of a run, from its file.

    Raises:
        StudyError: when the run did not come from a study file, or the file has moved, and none is named.
    """
    from .study import load_study

    stored = info.study_source or {"file": "", "function": info.study, "settings": {}}
    file = str(study_file or stored["file"])
    if study_file is None and not Path(file).is_file():
        raise StudyError(
            f"{path} was made with {file}, which is not there" if file else f"{path} was not made from a study file",
            hint="name the file that defines it with --study; in Python give the study: dse.open_run(path, study=...)",
        )
    return load_study(StudySource(file, stored["function"], stored["settings"]))


TOLERANCE = 1e-9  # relative; the simulators give the same numbers bit for bit


class Replay(Frozen):
    """Comparison of a design's recorded and present measurements.

    Attributes:
        rows: metric, recorded value, value now.
        text: the differences, or the reason why it could not be evaluated; empty when nothing differs.
    """

    key: str
    rows: list[tuple[str, Any, Any]]
    text: str
    verification: Verification | None = None

    @property
    def same(self) -> bool:
        return not self.text

    def to_dict(self) -> JsonObject:
        """For machines."""
        return {
            "key": self.key,
            "same": self.same,
            "differences": self.text,
            "metrics": {name: {"recorded": a, "now": b} for name, a, b in self.rows},
            "verified": None if self.verification is None else self.verification.ok,
        }


class Replayer:
    """Evaluates recorded designs again, each with its original evaluator. Executes the study file.

    Args:
        path: run directory.
        study_file: new path of a study file that was moved.

    Raises:
        StudyError: when the run did not come from a study file.
    """

    def __init__(self, path: Path, study_file: Path | None = None) -> None:
        self.path = path
        self._info = read_info(path)
        self._study = study_of(self._info, study_file, path)
        self._evaluators = self._study.make_evaluators()
        self._opened: dict[int, RungEvaluator] = {}

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *error: object) -> None:
        for evaluator in self._opened.values():
            evaluator.close()

    def records(self) -> list[Record]:
        """Records of designs, in the order of the log."""
        log = self.path / LOG
        with sensible(log):
            return [e for e in map(decode_entry, Log(log)) if isinstance(e, Record)]

    def propose(self, stop_requested: Callable[[], str]) -> Reproposal:
        """Make the proposals of the log's runs again, without evaluating any."""
        return propose_again(self._study, Log(self.path / LOG), stop_requested)

    def record(self, key: str) -> Record:
        """Return the logged record of an evaluated design.

        Raises:
            StudyError: if the log has none with that key.
        """
        found = next((r for r in self.records() if r.key == key and r.evaluated and not r.rung), None)
        if found is None:
            raise StudyError(f"{self.path} has no evaluated design {key}")
        return found

    def missing(self, rung: int) -> str | None:
        """Why designs of a rung cannot be evaluated here; None when they can."""
        if rung >= len(self._evaluators):
            return f"the study has no rung {rung} any more"
        return why_unavailable(self._evaluators[rung])

    def candidate(self, record: Record) -> Candidate:
        """The design of a record.

        Raises:
            StudyError: when the study has changed.
        """
        # Normal decoding changes folds that cannot be built. Enumerated spaces may hold them: decode literally, too.
        for literal in (False, True):
            candidate = self._study.space.decode_genes(record.genes, literal=literal)
            if candidate is not None and candidate.key == record.key:
                return candidate
        raise StudyError(
            f"design {record.key} is not in the study's space any more",
            hint="the program, the device or the parameters have changed since it was recorded",
        )

    def replay(self, record: Record, *, verify: bool = False) -> Replay:
        """Check and evaluate a design again; a changed study is a difference like any other."""
        try:
            candidate = self.candidate(record)
        except StudyError as error:
            return Replay(record.key, [], error.message)
        if not record.evaluated:
            return Replay(record.key, [], self._limits(record, candidate))
        rung = record.rung
        if rung not in self._opened:
            self._opened[rung] = make_rung_evaluator(self._study, rung, self._evaluators[rung])
        rows, text = _compare(record, self._opened[rung].run(record.number, candidate))
        return Replay(record.key, rows, text, self._study.verify(candidate.design, self._info.seed) if verify else None)

    def prove(self, key: str, exported: Path | None = None) -> Verification:
        """Decide whether an evaluated design, or its export, computes the same as its program for all inputs.

        Raises:
            StudyError: if the study has changed.
            Undecidable: if data decides on more than values.
        """
        return self._study.prove(self.candidate(self.record(key)).design, self._info.seed, exported)

    def _limits(self, record: Record, candidate: Candidate) -> str:
        """Describe differences in the device limits that the design breaks; empty if there are none."""
        before = {v["constraint"] for v in record.violations or ()}
        try:
            now = {str(v.constraint) for v in self._study.check(candidate.design)}
        except AlloDseError:
            now = {FOLDING_RULES}
        return "" if before == now else f"broke {_listed(before)}, now breaks {_listed(now)}"


def replay_design(path: Path, key: str, *, study_file: Path | None = None, verify: bool = False) -> Replay:
    """Evaluate a recorded design again, with the evaluator that measured it. Executes the study file.

    Raises:
        StudyError: when the run did not come from a study file, or the study has changed.
    """
    with Replayer(path, study_file) as replayer:
        record = replayer.record(key)
        replayer.candidate(record)
        return replayer.replay(record, verify=verify)


@dataclass
class RunReplay:
    """Progress and findings of the replay of a whole log.

    Attributes:
        records: number of design records in the log.
        different: designs with different results.
        skipped: counts of records that could not be evaluated here, by reason.
        stopped: reason for an early end.
        proposals: comparison of the proposals, made again.
    """

    path: Path
    records: int
    proposals: Reproposal
    same: int = 0
    different: list[Replay] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    stopped: str = ""

    @property
    def done(self) -> int:
        return self.same + len(self.different) + self.skipped.total()

    def to_dict(self) -> JsonObject:
        """For machines."""
        return {
            "run_dir": str(self.path),
            "records": self.records,
            "replayed": self.same + len(self.different),
            "same": self.same,
            "different": [replay.to_dict() for replay in self.different],
            "skipped": dict(self.skipped),
            "stopped": self.stopped,
            "proposals": self.proposals.to_dict(),
        }


def replay_run(
    path: Path,
    *,
    study_file: Path | None = None,
    stop_requested: Callable[[], str] = lambda: "",
    watch: Callable[[RunReplay], None] = lambda found: None,
) -> RunReplay:
    """Make the proposals of a log again if possible, then check and evaluate each design in the log's order.

    Executes the study file.

    Args:
        stop_requested: called before every design; returns a reason to stop, or an empty text.
        watch: called after every design.

    Raises:
        StudyError: when the run did not come from a study file.
    """
    with Replayer(path, study_file) as replayer:
        records = replayer.records()
        missing = {r.rung: replayer.missing(r.rung) for r in records if r.evaluated}
        found = RunReplay(path, len(records), replayer.propose(stop_requested))
        for record in records:
            found.stopped = stop_requested()
            if found.stopped:
                break
            problem = missing[record.rung] if record.evaluated else None
            if problem:
                found.skipped[problem] += 1
            elif (replay := replayer.replay(record)).same:
                found.same += 1
            else:
                found.different.append(replay)
            watch(found)
        return found


def _compare(record: Record, found: Measurement) -> tuple[list[tuple[str, Any, Any]], str]:
    """Return recorded and present metrics, with a description of the differences."""
    recorded, now = uncorrected(record.metrics or {}), found.metrics or {}
    rows = [(name, recorded.get(name), now.get(name)) for name in dict.fromkeys([*recorded, *now])]
    text = ", ".join(name for name, a, b in rows if not _equal(a, b))
    if found.error != record.error and (found.error is not None or not now):
        text = f"recorded {record.error or 'metrics'}, now {found.error}"
    return rows, text


def _listed(constraints: set[str]) -> str:
    return ", ".join(sorted(constraints)) or "no limit"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    return bool(a == b)
