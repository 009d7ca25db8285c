"""Bookkeeping of a run: records are logged first, then counted, then copied to a storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import structs

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import no_collections
from allo_dse.common.records import replace
from allo_dse.eval.calibrate.correction import Correction, correction_of
from allo_dse.eval.evaluator import Evaluator, full_name
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.regions import regions_with
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..results.result import Result
from ..search.scoring import Scorer
from ..search.screening import Screen, reasons
from ..search.tally import Tally
from ..store.certificate import Certificate
from ..store.log import RunLog, sensible
from ..store.record import Entry, Measurement, Record, Tick, Withdrawal, described, entry_dict, record_of
from ..store.rundir import LOGS, RunDirectory
from .cache import ResultCache
from .restore import History, corrected, judged, read_history, revalued

if TYPE_CHECKING:
    from .optuna_storage import StorageCopy

LOOK_SECONDS = 0.5  # between checks that the log still exists


class Ledger:
    """Records of all measurements, with what is derived from them. Opening it restores earlier runs.

    Args:
        directory: directory of its log.
        evaluators: evaluators of all rungs.

    Attributes:
        names: names of these evaluators.
        history: earlier runs.
        lower_bounds: bounds of designs before evaluation; none after a measurement has contradicted them.
    """

    def __init__(self, study: StudySpec, directory: RunDirectory, evaluators: Sequence[Evaluator]) -> None:
        self.study = study
        self.directory = directory
        self.names = [full_name(evaluator) for evaluator in evaluators]
        self.scorer = Scorer(study.objectives, study.constraints)
        self.tally = Tally(study.objectives)
        self.screen = Screen(study.space, study.check, study.check_soon)
        self._storage: StorageCopy | None = None
        self._pending: list[Record] = []  # violations, for the next write
        self._looked = time.monotonic()  # time of the last check that the log exists
        self._messages: list[str] = []
        self._measured = 0  # results of higher rungs since the correction was last fitted
        self._log = RunLog(directory.log)
        self.notes = list(self._log.notes)
        try:
            self.history = self._restored()
        except BaseException:
            self._log.close()
            raise
        self.lower_bounds = study.lower_bounds(None if self.history.withdrawn else evaluators[0])
        # Earlier measurements with today's first bounds, which may be others than those of their time.
        for record in self.history.designs.first:
            if self.lower_bounds.bounding is None:
                return
            with suppress(StudyError):
                self.compare(study.candidate(record), record, levels=1)

    @no_collections()
    def _restored(self) -> History:
        with sensible(self.directory.log):
            history = read_history(self._log, self.scorer, self.screen, self.names)
            against = ("", self.study.against)  # other verdicts are about another reference
            history.verified = {key: one for key, one in history.verified.items() if one.against in against}
            history.count(self.tally, self.scorer)
        self.tally.correction = history.correction
        self._measured = history.correction.unused
        self.write(history.revaluations())
        if history.designs:
            count = len(history.designs)
            self.notes.append(f"resuming {self.directory.path}: {count} designs are evaluated already")
        if history.outside:
            gone = f"{len(history.outside)} designs of {self.directory.path} count no more"
            self.notes.append(f"{gone}: conditions of the study (where=, when=) do not allow their parameters")
        return history

    def close(self) -> None:
        self._log.close()

    def copy_to(self, storage: StorageCopy) -> None:
        """Copy every design that is evaluated, and will be, to an Optuna storage."""
        self._storage = storage
        for record in self.history.designs.first:
            self._copy(record)

    def _copy(self, record: Record) -> None:
        if self._storage is not None:
            self.study.space.learn(record.genes)  # in this thread, not in that of the storage
            self._storage.put(record)

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries to the log that are not results."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._stay()
        self._log.append(map(entry_dict, entries))

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        self._stay()
        self._log.sync()

    def _stay(self) -> None:
        """See that directory and log are still there, and go on elsewhere with everything when they are not."""
        self._looked = time.monotonic()
        if self.directory.is_there and self._log.is_there:
            return
        before = self.directory.path
        self.directory.settle_elsewhere()
        self._log.move(self.directory.log)
        self._messages.append(
            f"{before} was deleted or replaced while the run was writing to it: everything is kept in "
            f"{self.directory.path} from now on; name it with --run-dir to go on there"
        )

    def messages(self) -> list[str]:
        """Return messages about the log since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def left_out(self) -> list[str]:
        """Describe programs that are left out of the space because they do not compile."""
        parameters = parameters_of(self.study.space)
        wrong = [] if parameters is None else parameters.wrong
        many = sum(map(len, wrong))
        does = "program does not compile and is" if many == 1 else "programs do not compile and are"
        return [f"{many:,} {does} left out: {reasons(wrong)}"] if many else []

    def note_violations(self, at: float) -> None:
        """Keep the designs that were found to break a device limit for the next write.

        Args:
            at: seconds since the study began.
        """
        self._pending += [
            Record(number=-1, status="violation", violations=violations, at=at, **described(candidate))
            for candidate, violations in self.screen.taken()
        ]

    def record(self, candidate: Candidate, found: Measurement, *, at: float, log: str | None = None) -> Record:
        """Return the record of a measurement.

        At a higher rung, objectives and constraints read the metrics of all rungs.

        Args:
            log: file with what the evaluator printed.
        """
        made = record_of(candidate, found, at=at, log=log)
        if not found.rung:
            return self.scorer.scored(corrected(made, self.tally.correction))
        together = self.scorer.merged(self.tally.records.by_key(made.key), made)
        return replace(together, metrics=made.metrics, rungs=())

    def add(self, records: Sequence[Record]) -> None:
        """Take in records. On disk before counted: one that cannot be written is not a result."""
        violations, self._pending = self._pending, []
        self.write((*violations, *records))
        for line, record in enumerate(records, len(self._log) - len(records)):
            if record.rung:
                self._measured += 1
                together = self.scorer.merged(self.tally.records.by_key(record.key), record)
                self.tally.add_higher(together, self.scorer.values(together))
            else:
                self.tally.add(record, self.scorer.values(record), line)
            self._copy(record)

    def compare(self, candidate: Candidate, record: Record, *, levels: int | None = None) -> bool:
        """Compare a measurement of the first rung with all that was known of its design and of its regions. The first
        contradiction withdraws every bound, in the log before the measurement is.

        Args:
            levels: number of levels of bounds to compare with; all by default.

        Returns:
            Whether bounds were withdrawn.
        """
        if self.lower_bounds.bounding is None or record.metrics is None or record.rung:
            return False
        regions = regions_with(self.study.space, candidate) if self.lower_bounds.knows_regions else ()
        reason = self.lower_bounds.contradiction(candidate.design, record.metrics, regions, levels=levels)
        if not reason:
            return False
        self.lower_bounds, self.history.withdrawn = self.study.lower_bounds(None), True
        self.write([Withdrawal(self.names[0], record.key, reason)])
        self._messages.append(
            f"BOUNDS WITHDRAWN: design {record.key} contradicts the bounds of {self.names[0]}: {reason}. All that they "
            "decided is open again, and the search goes on without them"
        )
        return True

    @property
    def next_number(self) -> int:
        """Number of the next proposal."""
        return max(self.tally.records.next_number, self.history.outside.next_number)

    def learn(self) -> bool:
        """Fit predictions to the measurements. If they change, count all designs anew and log the changes.

        Returns:
            Whether they have changed.
        """
        if self._measured < self.tally.correction.step:
            return False
        before, found = self.tally.correction, self._correction()
        self._measured = found.unused
        self.tally.correction = found
        if found.used == before.used:
            return False
        designs = self.tally.records
        higher = [(rung, designs.by_key(key)) for rung, keys in self.tally.rungs.items() for key in keys]
        again = replace(
            self.history,
            designs=designs.judged_by(judged(self.scorer, found)),
            higher=[replace(r, **structs.asdict(m), rungs=()) for rung, r in higher for m in r.rungs if m.rung == rung],
        )
        self.tally.begin_again(found)
        again.count(self.tally, self.scorer)
        changed = designs.differing.union(again.designs.differing, designs.promoted)
        self.write(revalued((again.designs[row], designs[row]) for row in sorted(changed)))
        return True

    def _correction(self) -> Correction:
        records = ((rung, self.tally.records.by_key(key)) for rung, keys in self.tally.rungs.items() for key in keys)
        return correction_of(
            (r.key, rung, r.rungs[0].metrics, m.metrics) for rung, r in records for m in r.rungs if m.rung == rung
        )

    def result(self, reason: str) -> Result:
        """Return the result of the study.

        Args:
            reason: why the run ended.
        """
        return Result(
            self.study,
            self.tally.records,
            self.tally.final_values,
            dict(self.history.verified),
            reason,
            self.directory.path,
            dict(self.history.placed),
            self._correction(),
            limits=dict(self.screen.killed),
            enqueued=self.study.enqueued or self.history.enqueued,
        )

    def refuse_nothing(self) -> None:
        """Raise an error if an exhausted space had nothing to evaluate.

        Raises:
            StudyError: when every proposal was ruled out before it could be evaluated.
        """
        if self.tally.done:
            return
        self.sync()
        error = self.screen.refusal()
        if self.screen.invalid:
            error.hint += f"\n{self.directory.log} has the violations in full"
        raise error


# Files beside the records: results for other runs, output of failed evaluations, running totals.


TICK_SECONDS = 2.0


class SideFiles:
    """Keeper of the files beside the log.

    Args:
        caches: one per rung, or none at all.
    """

    def __init__(self, directory: RunDirectory, screen: Screen, caches: Sequence[ResultCache]) -> None:
        self._directory, self._screen, self._caches = directory, screen, caches
        self._ticked, self._next = time.monotonic(), 0
        self._last: Tick | None = None

    def known(self, candidate: Candidate, rung: int) -> dict[str, Any] | None:
        """Metrics that an earlier run found."""
        return self._caches[rung].get(candidate) if self._caches else None

    def keep(self, candidate: Candidate, found: Measurement) -> str | None:
        """Keep the side results of a measurement; return the file with its printed output, if any."""
        if found.metrics is not None and not found.cached and self._caches:
            self._caches[found.rung].put(candidate, found.metrics, found.seconds)
        if found.metrics is not None or not found.printed:
            return None
        name = f"{LOGS}/{candidate.key}-{found.rung}.txt"
        self._directory.write(name, found.printed)
        return name

    def tick(
        self, at: float, evaluated: int, certificate: Callable[[], Certificate | None], *, last: bool
    ) -> Tick | None:
        """Return running totals for the log if they changed: from time to time, and with every 10 % more designs.

        Decisions about the space are also written to `run.json`, for readers of the run.
        """
        now = time.monotonic()
        if not last and now - self._ticked < TICK_SECONDS and evaluated < self._next:
            return None
        self._ticked, self._next = now, evaluated + max(1, evaluated // 10)
        decided = certificate()
        if decided is not None:
            self._directory.certify(decided)
        screen, hits = self._screen, sum(cache.hits for cache in self._caches)
        totals = Tick(
            at=0.0, repeats=screen.repeats, illegal=screen.illegal, invalid=screen.invalid, cache_hits=hits,
            bounds=decided.bounds if decided else {},
        )  # fmt: skip
        if totals == self._last:
            return None
        self._last = totals
        return replace(totals, at=at)
