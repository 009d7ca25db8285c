"""One run of a study from start to finish: set up, search, verify the front, write the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import no_collections, rare_collections
from allo_dse.common.records import replace
from allo_dse.eval.evaluator import Evaluator, full_name, needs
from allo_dse.space.space import Candidate

from ..declare.enqueued import enqueue
from ..declare.spec import StudySpec
from ..results.result import Result
from ..search.budget import Budget, StepLeft, StopSignals
from ..search.early_stop import EarlyStop
from ..search.promotion import Promotion
from ..search.proposals import SAMPLERS, make_proposer
from ..search.proposer import Proposer
from ..search.repeats import Repeating
from ..show.output import write_best, write_front_code
from ..show.reporter_of_run import make_reporter
from ..show.reporters import Reporter
from ..show.run_view import RunView
from ..store.certificate import Certificate
from ..store.record import Measurement, PlacementNote, Session
from ..store.run_info import RunInfo, StatedObjective
from ..store.rundir import RunDirectory, default_run_dir, versions
from ..workers.executor import Job
from ..workers.executor_setup import ExecutorSetup, needs_of_all, set_up_executor, unusable_here
from ..workers.ray_access import reach
from .cache import ResultCache
from .ledger import Ledger, SideFiles
from .options import RunOptions

if TYPE_CHECKING:
    from .optuna_storage import StorageCopy

# Main loop of a run: propose, screen, evaluate, log, count, learn, show.


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
        self.budget.reached = ""
        self._view = RunView(
            study, ledger.tally, ledger.screen, self.budget, ledger.directory.path, self.proposer,
            ledger.tally.done, ledger.result,
        )  # fmt: skip

        ledger.screen.meanwhile = self._meanwhile
        self._enqueued = ledger.screen.new_of(study.enqueued)

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
                    if self._withdrawn:  # go on without bounds, as a run that begins with all that was measured
                        self._withdrawn, self.proposer = False, self.renew()
                        self._view = replace(self._view, proposer=self.proposer)
                        self._show_decided(last=True)
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
        stalled = tally.done - max(tally.improved, self._view.before)  # trials of earlier runs do not count
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
            outcome, records = self.ledger.scorer.outcome, self.ledger.tally.records.first
            self.proposer.revise({record.number: outcome(record, refuted) for record in records})

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


QUICK_MODELLED = 64  # model proposals, if an evaluation is as fast as one
RESULTS = ".results"  # folder beside the run directories, with results shared across runs


def run_study(study: StudySpec, options: RunOptions) -> Result:
    """Search. Running again with the same run directory goes on where the last run stopped.

    Raises:
        StudyError: when the run cannot start, e.g. because the directory holds a run of something else.
    """
    budget = options.budget(study.trials, study.objectives, has_rungs=bool(study.rungs))
    reporter = make_reporter(options.progress)
    opened = RunDirectory(
        Path(options.run_dir or default_run_dir(study.name, study.source.settings if study.source else {}))
    )
    with closing(opened) as directory, StopSignals() as stop, reporter, rare_collections(), ExitStack() as kept:
        with stop.leaving():
            evaluators = study.make_evaluators()
            study.check_metric_names(evaluators)
            if options.warm_start is not None:
                enqueue(study, options.warm_start, {})
            asked = needs_of_all(evaluators, options.deadlines)
            caches = [kept.enter_context(closing(one)) for one in _caches(study, options, evaluators, directory)]
            seed, storage = _begun(study, options, evaluators, directory)
        with (
            closing(Ledger(study, directory, evaluators)) as ledger,
            _copied(ledger, storage, reporter),
        ):
            for note in ledger.notes:
                reporter.note(note)
            for rung, evaluator in enumerate(evaluators):
                if isinstance(evaluator, Repeating):
                    for record in ledger.history.higher if rung else ledger.history.designs.first:
                        if record.rung == rung and record.metrics:
                            evaluator.remember(record.metrics)
            certificate: Certificate | None = None
            # With rungs, designs may still wait for promotion.
            if not study.rungs and budget.trials is not None and ledger.tally.done >= budget.trials:
                reporter.note(f"all {budget.trials} trials are done: ask for more to go on")
                reason = "trials"
            else:
                ledger.screen.meanwhile = lambda: budget.search_time_is_up
                try:
                    with stop.leaving():
                        renew = partial(_proposer, ledger, options, seed, budget, evaluators[0], reporter)
                        proposer = renew()
                        setup = set_up_executor(study, evaluators, asked, options.workers, options.ray_address)
                except StepLeft as left:  # the setup was interrupted
                    reason = str(left)
                else:
                    with closing(setup.executor):
                        for note in setup.notes:
                            reporter.note(note)
                        side_files = SideFiles(directory, ledger.screen, caches)
                        while True:
                            driver = Driver(proposer, setup, ledger, side_files, budget, reporter, stop, renew)
                            reason, known = driver.run(), len(ledger.history.wrong)
                            proposer = driver.proposer
                            if options.verify:
                                with suppress(StepLeft), stop.leaving():
                                    reporter.searched(ledger.result(reason))
                                    _verify(ledger, reporter, stop, seed)
                            if len(ledger.history.wrong) == known:
                                break
                            reporter.note("the search goes on with designs that only wrong ones had ruled out")
                            proposer = renew()
                    certificate = proposer.certificate()
            if reason == "exhausted" and not (certificate and certificate.bounded):  # bounds may rule all out
                ledger.refuse_nothing()
            if options.verify:
                with suppress(StepLeft), stop.leaving():
                    _verify(ledger, reporter, stop, seed)
                    _place(ledger, reporter, stop)
            ledger.sync()
            for note in (*ledger.messages(), *ledger.left_out()):
                reporter.note(note)
            result = ledger.result(stop.requested or reason).written(directory, certificate)
            if storage is not None:
                storage.finish(result)
            reporter.finish(result, options.command)
            try:
                with stop.leaving():
                    if options.export:
                        write_front_code(result, directory)
                        write_best(result, directory)
            except StepLeft:
                reporter.note("best/ is not complete; the same command writes it, and all else is kept")
                result = replace(result, stopped=stop.requested)
        return result


def _begun(
    study: StudySpec, options: RunOptions, evaluators: Sequence[Evaluator], directory: RunDirectory
) -> tuple[int, StorageCopy | None]:
    """Compare the run with the directory and write its `run.json`, after all other checks of the request.

    Returns:
        Seed of the run, and its copy in a storage.
    """
    earlier = None if options.fresh else directory.earlier()
    program, device = study.fingerprint()
    sampler, source, url = options.sampler, study.source, options.storage
    if url:
        from .optuna_storage import StorageCopy, reach_storage, without_password  # late: Optuna is slow to import
    info = RunInfo(
        study=study.name,
        seed=options.seed if options.seed is not None else earlier.seed if earlier else 0,
        program=program,
        device=device,
        evaluator=full_name(evaluators[0]),
        space=study.space.describe(),
        versions=versions(),
        command=list(options.command),
        objectives=[StatedObjective(o.name, o.direction) for o in study.objectives],
        constraints=[c.name for c in study.constraints],
        study_source=source.to_dict() if source else None,
        evaluators=[{"name": e.name, "version": e.version, "resource": needs(e).resource} for e in evaluators],
        sampler=sampler if isinstance(sampler, str) else type(sampler).__name__,
        workers=options.workers or 1,
        storage=url and without_password(url),
    )  # fmt: skip
    if options.ray_address is not None:
        reach(options.ray_address)
    else:
        unusable_here(evaluators)
    storage = reach_storage(url, directory.path) if url else None
    if options.fresh:
        directory.clear()
        storage = reach_storage(url, directory.path) if url else None  # it may be a file in there
    directory.begin(info)
    return info.seed, StorageCopy(url, storage, study, info) if url and storage else None


def _proposer(
    ledger: Ledger, options: RunOptions, seed: int, budget: Budget, evaluator: Evaluator, reporter: Reporter
) -> Proposer:
    """Create the proposer and restore it from earlier runs."""
    study, done = ledger.study, ledger.next_number
    quick = {"modelled": QUICK_MODELLED} if needs(evaluator).quick else {}
    sizes = {**quick, **study.sizes, **options.sizes}
    make = partial(
        make_proposer, screen=ledger.screen, lower_bounds=ledger.lower_bounds,
        seed=seed, done=done, trials=budget.trials, strict=options.inline, sizes=sizes,
    )  # fmt: skip
    try:
        proposer = make(options.sampler)
    except StudyError as error:
        if options.sampler != "exact" or not ledger.history.withdrawn:
            raise
        reporter.note(f"without bounds there is no proof: {error.message}. The search goes on with sampler='evolution'")
        proposer = make("evolution")
    session = Session(
        sampler=proposer.name, named=proposer.name in SAMPLERS, seed=seed, done=done,
        strict=options.inline, trials=budget.trials, sizes=sizes, enqueued=study.enqueued,
    )  # fmt: skip
    if budget.gap is not None and (proposer.certificate() is None or ledger.lower_bounds.unbounded):
        raise StudyError(
            "gap= needs bounds of every objective", hint="a simulator has them; or end by trials or patience"
        )
    ledger.write([session])
    with no_collections():
        proposer.restore(ledger.tally.records.first, ledger.history.outcome_of(ledger.scorer, ledger.tally), done)
    return proposer


def _caches(
    study: StudySpec, options: RunOptions, evaluators: Sequence[Evaluator], directory: RunDirectory
) -> list[ResultCache]:
    """Return caches of results shared with other runs, one per rung; none if disabled."""
    where = options.cache
    if where is None and options.run_dir is None:
        where = directory.path.parent / RESULTS
    return [ResultCache(Path(where), evaluator) for evaluator in evaluators] if where else []


@contextmanager
def _copied(ledger: Ledger, copy: StorageCopy | None, reporter: Reporter) -> Iterator[None]:
    """Copy designs to an Optuna storage meanwhile, if one is given."""
    if copy is None:
        yield
        return
    try:
        ledger.copy_to(copy)
        yield
    finally:
        copy.close()
        if copy.problem:
            reporter.note(
                f"not every design is in the storage: {copy.problem}; the log has them all, and the same command "
                "copies the rest"
            )


def _verify(ledger: Ledger, reporter: Reporter, stop: StopSignals, seed: int) -> None:
    """Verify the front. A wrong design leaves it, and designs that it dominated are verified in turn."""
    verified = ledger.history.verified
    while pending := [best for best in ledger.result("").front if best.key not in verified]:
        for position, best in enumerate(pending):
            if stop.requested:
                return
            reporter.verifying(position, len(pending))
            ledger.write([found := replace(ledger.study.verify(best.design, seed), key=best.key)])
            verified[best.key] = found
            reporter.verified(ledger.result(""))
            if not found.ok:
                words = found.words.upper()
                reporter.note(f"{words}: design {best.key} is removed from the front: {found.message}", alarm=True)


def _place(ledger: Ledger, reporter: Reporter, stop: StopSignals) -> None:
    """Place the front's designs on the array; the search only checked their counts against the limits."""
    placed = ledger.history.placed
    for best in ledger.result("").front:
        if stop.requested:
            return
        started = time.perf_counter()
        if best.key in placed or (found := best.placement) is None:
            continue
        note = PlacementNote(found.placed, str(found), round(time.perf_counter() - started, 3), best.key)
        ledger.write([note])
        placed[best.key] = note
        if not note.ok:
            reporter.note(f"design {best.key} cannot be placed: {note.reason}")
