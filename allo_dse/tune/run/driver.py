"""Main loop of a run: propose, screen, evaluate, log, count, learn, show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.space.space import Candidate

from ..search.budget import Budget, StepLeft, StopSignals
from ..search.early_stop import EarlyStop
from ..search.exact import Proposer
from ..search.promotion import Promotion
from ..show.reporters import Reporter
from ..show.run_view import View
from ..store.record import Measurement
from ..workers.executor import Job
from ..workers.executor_setup import ExecutorSetup
from .ledger import Ledger, SideFiles

PROPOSE_AT_ONCE = 16  # designs; small, so that an idle worker need not wait until all others have work


@dataclass
class Driver:
    """Runs a study until its budget is spent, its space exhausted or a stop requested, then finishes the promotions.

    Args:
        proposer: source of designs.
        setup: executor of their evaluation.
        ledger: records of their results.
        side_files: results for other runs, printed output and running totals, kept beside the log.
        stop: checked between batches.
        renew: recreates the proposer from the ledger after bounds were withdrawn.
    """

    proposer: Proposer
    setup: ExecutorSetup
    ledger: Ledger
    side_files: SideFiles
    budget: Budget
    reporter: Reporter
    stop: StopSignals
    renew: Callable[[], Proposer]
    _pending: dict[tuple[int, int], Candidate] = field(default_factory=dict, init=False)
    _early_stop: EarlyStop = field(init=False)
    _enqueued: list[Candidate] = field(init=False)
    _refuted: int = field(init=False)
    """Designs that are known to the proposer to fail above the first rung."""
    _stalled_before: int = field(init=False)
    """Trials that do not count for patience: those of earlier runs."""
    _withdrawn: bool = field(default=False, init=False)
    """Whether the proposer counts on bounds that do not hold, and is renewed when nothing is under way."""

    def __post_init__(self) -> None:
        ledger, study = self.ledger, self.ledger.study
        usable = zip(study.rungs, self.setup.usable[1:], strict=True)
        rungs = [rung if there else None for rung, there in usable]
        signs, space = [o.sign for o in study.objectives], study.space
        self._promotion = Promotion(rungs, ledger.tally, signs, space.genes, space.learn)
        self._executor = self.setup.executor
        self._refuted = len(ledger.tally.refuted)
        self._early_stop = EarlyStop(ledger.tally.records)
        self.budget.reached, self._stalled_before = "", ledger.tally.done
        self._view = View(
            study, ledger.tally, ledger.screen, self.budget, ledger.directory.path, self.proposer,
            ledger.tally.done,
        )  # fmt: skip

        ledger.screen.meanwhile = self._meanwhile
        self._enqueued = ledger.screen.new_of(study.enqueued)

    def _renew(self) -> None:
        """Go on without bounds, as a run that begins with all that was measured."""
        self._withdrawn = False
        self.proposer = self.renew()
        self._view = replace(self._view, proposer=self.proposer)
        self._show_decided(last=True)

    def run(self) -> str:
        """Run to the end; return the reason: "trials", "time", "exhausted" or the source of the stop request."""
        self.reporter.start(self._view)
        reason = ""
        try:
            while True:
                self._look()
                reason = reason or self.stop.requested or ("target" if self.budget.reached == "target" else "")
                if reason or (self.budget.time_is_up and self.ledger.tally.done):
                    self._executor.stop()
                else:
                    self._propose()
                    self._promote()
                if self._executor.outstanding() == 0:
                    self.ledger.add([])
                    if self._withdrawn:
                        self._renew()
                        continue
                    self._show_decided(last=True)
                    return reason or self._why()
                with self.stop.leaving():
                    found = self._executor.collect()
                self._record(found)
                self._learn()
                self._show()
        except BaseException as ended:
            if found := self._executor.finished():  # results from before the interruption
                self._record(found)
            if isinstance(ended, StepLeft):
                return self.stop.requested
            raise
        finally:
            self.reporter.update(self._view, last=True)

    def _look(self) -> None:
        """End the search if its results are good enough."""
        tally, wrong = self.ledger.tally, self.ledger.history.wrong
        found = tally.feasible(len(self.ledger.study.rungs))
        signs = [o.sign for o in tally.objectives]
        losses = (
            [s * v for s, v in zip(signs, values, strict=True)] for key, values in found.items() if key not in wrong
        )
        stalled = tally.done - max(tally.improved, self._stalled_before)
        self.budget.look(losses, stalled, self.proposer.certificate)

    def _why(self) -> str:
        if self.budget.reached:
            return self.budget.reached
        if self.proposer.exhausted:
            return "exhausted"
        return "time" if self.budget.search_time_is_up else "trials"

    def _propose(self) -> None:
        """Keep the workers busy: first with enqueued designs, and with proposals once their results are known."""
        if self._withdrawn:
            return
        if self._enqueued:
            first, self._enqueued = self._enqueued[: self.budget.trials_left(self.ledger.tally.done)], []
            # They are numbered when the proposer learns from them.
            self._submit(0, [(-1 - n, candidate) for n, candidate in enumerate(first)])
        if any(number < 0 for number, _ in self._pending):
            return
        room = self._executor.room(0)
        while room > 0 and not self.proposer.exhausted:
            outstanding = self._executor.outstanding(0)
            left = self.budget.trials_left(self.ledger.tally.done + outstanding)
            count = min(room, left, PROPOSE_AT_ONCE)
            try:
                with self.stop.leaving():
                    found = self.proposer.ask(count, outstanding) if count > 0 else []
            except StudyError:  # keep the violations, so that the next run tries other designs
                self.ledger.note_violations(self._at)
                self.ledger.add([])
                raise
            # The choice may have used up the remaining time.
            found = found[: self.budget.trials_left(self.ledger.tally.done + outstanding)]
            self.ledger.note_violations(self._at)
            if not found:
                return
            self._submit(0, [(p.number, p.candidate) for p in found])
            room -= len(found)

    def _promote(self) -> None:
        """Promote designs: during the search to evaluators with workers of their own, after it to all."""
        over = self._executor.outstanding(0) == 0
        for rung in self._promotion.usable:
            if over or self._executor.separate(rung):
                records = self._promotion.next(rung, self._executor.room(rung), over=over)
                rebuilt = self.ledger.study.candidate
                self._submit(rung, [(record.number, rebuilt(record)) for record in records])
            over = over and self._executor.outstanding(rung) == 0

    def _submit(self, rung: int, designs: Sequence[tuple[int, Candidate]]) -> None:
        if designs:
            self._pending.update(((number, rung), candidate) for number, candidate in designs)
            self._executor.submit([Job(number, rung, c, self._known(number, rung, c)) for number, c in designs])

    def _known(self, number: int, rung: int, candidate: Candidate) -> Measurement | None:
        """Return a result for a design that is known already: attached to the study, or of an earlier run."""
        attached, key, error = self.ledger.study.attached, candidate.key, None
        is_attached = not rung and key in attached
        metrics = attached[key] if is_attached else self.side_files.known(candidate, rung)
        if metrics is None:
            if not is_attached:
                return None
            error = "failed where it was measured"
        name = self.ledger.names[rung]
        return Measurement(number=number, rung=rung, evaluator=name, metrics=metrics, cached=True, error=error)

    def _record(self, found: Sequence[Measurement]) -> None:
        records, proposed = [], []
        for measured in found:
            candidate = self._pending.pop((measured.number, measured.rung))
            log = self.side_files.keep(candidate, measured)
            record = self.ledger.record(candidate, measured, at=self._at, log=log)
            self._withdrawn |= self.ledger.compare(candidate, record)
            if record.number < 0:  # enqueued
                number = self.proposer.learn(record.key, record.genes, self.ledger.scorer.outcome(record))
                record = replace(record, number=number)
            elif not record.rung:
                proposed.append(record)
            records.append(record)
        self.ledger.add(records)
        self._early_stop.look(records)
        for record in proposed:
            self.proposer.tell(record.number, self.ledger.scorer.outcome(record))

    def _learn(self) -> None:
        """Revise the proposer's results after corrections of predictions or failures at higher rungs."""
        changed, refuted = self.ledger.learn(), self.ledger.tally.refuted
        if changed or len(refuted) > self._refuted:
            self._refuted = len(refuted)
            records = changed or self.ledger.first
            self.proposer.revise({record.number: self.ledger.scorer.outcome(record, refuted) for record in records})

    def _show(self) -> None:
        for text in (*self._executor.messages(), *self.ledger.messages()):
            self.reporter.note(text)
        self._show_decided()

    def _meanwhile(self) -> bool:
        self._show_decided()
        return self.budget.search_time_is_up

    def _show_decided(self, *, last: bool = False) -> None:
        tick = self.side_files.tick(self._at, self.ledger.tally.done, lambda: self._view.certificate, last=last)
        if tick is not None:
            self.ledger.write([tick])
        self.reporter.update(self._view)

    @property
    def _at(self) -> float:
        return round(self.ledger.history.started_at + self.budget.elapsed, 4)
