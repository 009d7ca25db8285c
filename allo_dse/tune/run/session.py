"""One run of a study from start to finish: set up, search, verify the front, write the results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from allo_dse.errors import StudyError
from allo_dse.eval.evaluator import full_name, needs
from allo_dse.space.gene import suggest_from
from allo_dse.space.space import Candidate

from ..declare.spec import PlacementNote, StudySpec, Verification
from ..results.result import Result
from ..search.budget import Budget, StopSignals, parse_duration
from ..search.proposals import Proposer, learnt_genes, make_proposer
from ..search.screening import Screen
from ..search.tally import Tally
from ..show.output import write_results
from ..show.progress import make_reporter
from ..show.reporters import Reporter
from ..show.run_view import View
from ..store.log import RunLog, sensible
from ..store.record import Record
from ..store.rundir import RunDirectory, RunInfo, default_run_dir, versions
from ..workers.executor import Outcome
from ..workers.workforce import Workforce, demands, recruit
from .cache import ResultCache
from .driver import Driver, Judge
from .garbage import rare_collections
from .reproposal import session_entry
from .restore import History, read_history
from .sharing import SharingExecutor
from .side_files import Keeper
from .storage import SharedStudy, without_password

RESULTS = ".results"  # beside the run directories: what evaluators found, across runs
SEARCH_SHARE = 0.6  # of a time budget, where there are dear evaluators to go on to


@dataclass(frozen=True)
class RunOptions:
    """How to run a study; see `Study.run`."""

    trials: int | None
    time: str | float | None = None
    workers: int | None = None
    seed: int | None = None
    sampler: Any = "auto"
    run_dir: Path | None = None
    fresh: bool = False
    verify: bool = True
    ray_address: str | None = None
    progress: Any = "auto"
    command: tuple[str, ...] = ()
    cache: Path | Literal[False] | None = None
    storage: str | None = None
    deadlines: Mapping[str, str | float] = field(default_factory=dict)


def run_study(study: StudySpec, options: RunOptions) -> Result:
    """Run a study; see `Study.run`."""
    if options.workers is not None and options.workers < 1:
        raise StudyError(f"{options.workers} workers cannot work", hint="--workers 1 evaluates in this process")
    if options.trials is not None and options.trials < 1:
        raise StudyError(f"a budget of {options.trials} trials leaves nothing to do")
    share = SEARCH_SHARE if study.rungs else 1.0
    budget = Budget(options.trials, None if options.time is None else parse_duration(options.time), share)
    reporter = make_reporter(options.progress)
    directory = RunDirectory(options.run_dir or default_run_dir(study.name), fresh=options.fresh)
    try:
        with StopSignals() as stop, reporter, rare_collections():
            return _Session(study, options, budget, reporter, directory, stop).run()
    finally:
        directory.close()


class _Session:
    """The parts of one run, put together."""

    def __init__(
        self,
        study: StudySpec,
        options: RunOptions,
        budget: Budget,
        reporter: Reporter,
        directory: RunDirectory,
        stop: StopSignals,
    ) -> None:
        self.study = study
        self.options = options
        self.budget = budget
        self.reporter = reporter
        self.directory = directory
        self.stop = stop
        self.judge = Judge(study.objectives, study.constraints)
        self.tally = Tally(study.objectives)
        self.history = History()
        self.evaluators = study.make_evaluators()
        self.names = [full_name(evaluator) for evaluator in self.evaluators]
        self.asked = demands(self.evaluators, options.deadlines)
        self.seed = self._begin()
        self.log = RunLog(directory.log)
        self.screen = Screen(study.space, study.check, self._on_violation)
        self.driver: Driver | None = None
        self.shared: SharedStudy | None = None

    def _begin(self) -> int:
        """Compare with what the directory holds, and write down what is run; returns the seed."""
        earlier = self.directory.earlier()
        seed = self.options.seed if self.options.seed is not None else (earlier.seed if earlier else 0)
        program, device = self.study.fingerprint()
        self.directory.begin(
            RunInfo(
                study=self.study.name,
                seed=seed,
                program=program,
                device=device,
                evaluator=self.names[0],
                space=self.study.space.describe(),
                versions=versions(),
                command=list(self.options.command),
                **self._facts(),
            )
        )
        return seed

    def _facts(self) -> dict[str, Any]:
        """What readers of the directory want to know, and what may change from run to run."""
        study, sampler, source = self.study, self.options.sampler, self.study.source
        return {
            "objectives": [{"name": o.name, "direction": o.direction} for o in study.objectives],
            "constraints": [c.name for c in study.constraints],
            "study_source": source and {
                "file": str(Path(source.file).resolve()),
                "function": source.function,
                "settings": dict(source.settings),
            },
            "evaluators": [
                {"name": e.name, "version": e.version, "resource": needs(e).resource} for e in self.evaluators
            ],
            "sampler": sampler if isinstance(sampler, str) else type(sampler).__name__,
            "workers": self.options.workers or 1,
            "storage": self.options.storage and without_password(self.options.storage),
        }  # fmt: skip

    def run(self) -> Result:
        try:
            self._restore()
            reason = self._search()
            self._refuse_nothing(reason)
            result = self._result(reason)
            if self.options.verify and not self.stop.requested:
                result = self._place(self._verify(result))
            self.log.sync()
            write_results(result, self.directory)
            self.reporter.finish(result, self.screen, self.options.command)
            return result
        finally:
            self.log.close()

    # -- earlier runs -------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Take over what the log holds."""
        for note in self.log.content.notes:
            self.reporter.note(note)
        with sensible(self.directory.log):
            self.history = read_history(self.log.content.lines, self.judge, self.screen)
        self.log.forget()
        self.history.count(self.tally, self.judge, self.names)
        self.log.append(self.history.changed)
        if self.history.designs:
            count = len(self.history.designs)
            self.reporter.note(f"resuming {self.directory.path}: {count} designs are evaluated already")

    # -- search -------------------------------------------------------------------------------------------------------

    def _search(self) -> str:
        if self._nothing_left():
            self.reporter.note(f"all {self.options.trials} trials are done: ask for more to go on")
            return "trials"
        strict = self.options.workers in (None, 1) and self.options.ray_address is None
        proposer = make_proposer(
            self.options.sampler,
            self.study.space,
            self.screen,
            self.study.objectives,
            seed=self.seed,
            done=self.history.next_number,
            trials=self.options.trials,
            strict=strict,
        )
        done, shared = self.history.next_number, self.options.storage is not None
        self.log.append([session_entry(proposer, seed=self.seed, done=done, strict=strict, shared=shared)])
        proposer.restore(self.history.designs, self.judge.told, self.history.next_number)
        workforce = recruit(self.study, self.evaluators, self.asked, self.options.workers, self.options.ray_address)
        view = View(
            self.study, self.tally, self.screen, self.budget, self.directory.path, proposer.name, self.tally.done
        )
        try:
            self.shared = self._share()
            if self.shared is not None:
                workforce = replace(workforce, executor=SharingExecutor(workforce.executor, self.shared))
            return self._drive(proposer, workforce, view)
        finally:
            self.reporter.update(view, last=True)
            workforce.executor.close()
            if self.shared is not None:
                self.shared.close()
                if self.shared.problem:
                    self.reporter.note(f"not every design is in the storage: {self.shared.problem}")

    def _nothing_left(self) -> bool:
        return (
            not self.study.rungs and self.options.trials is not None and self.tally.done >= self.options.trials
        )  # with rungs, designs may be waiting for their promotion

    def _drive(self, proposer: Proposer, workforce: Workforce, view: View) -> str:
        for note in workforce.notes:
            self.reporter.note(note)
        keeper = Keeper(self.directory, self.log, self.screen, self._caches())
        self.driver = Driver(
            proposer=proposer,
            executor=workforce.executor,
            judge=self.judge,
            log=self.log,
            tally=self.tally,
            budget=self.budget,
            rungs=[r if usable else None for r, usable in zip(self.study.rungs, workforce.usable[1:], strict=True)],
            names=self.names,
            started_at=self.history.started_at,
            known=keeper.known,
            rebuild=self._rebuild,
            keep=keeper.keep,
            stop_requested=lambda: self.stop.requested,
            watch=lambda: self._watch(view, keeper, workforce),
            recorded=self._recorded,
            others=self._others,
        )
        self.reporter.start(view)
        try:
            return self.driver.run()
        finally:
            keeper.close()

    def _watch(self, view: View, keeper: Keeper, workforce: Workforce) -> None:
        for text in workforce.executor.news():
            self.reporter.note(text)
        keeper.tick(self.history.started_at + self.budget.elapsed)
        self.reporter.update(view)

    def _share(self) -> SharedStudy | None:
        """The study in the storage that was asked for, with everything this directory's log holds."""
        if self.options.storage is None:
            return None
        program, device = self.study.fingerprint()
        identity = {
            "program": program,
            "device": device,
            "evaluator": self.names[0],
            "space": self.study.space.describe(),
        }
        shared = SharedStudy(
            self.options.storage, self.study.name, self.directory.path, identity, self.judge, self.study.space.genes,
            self.names,
        )  # fmt: skip
        for record in (*self.history.designs, *self.history.higher):
            learnt_genes(self.study.space, record)
            shared.put(record)
        return shared

    def _recorded(self, record: Record) -> None:
        if self.shared is not None:
            learnt_genes(self.study.space, record)
            self.shared.put(record)

    def _others(self) -> list[tuple[Candidate, Outcome]]:
        """What other drivers of the study have evaluated, at the first rung unless it is known here."""
        found = []
        for foreign in self.shared.news() if self.shared else ():
            if not foreign.rung and self.screen.knows(foreign.key):
                continue
            candidate = self.study.space.decode_genes(foreign.genes)
            if candidate is not None and candidate.key == foreign.key:
                self.screen.remember(foreign.key, None)
                found.append((candidate, foreign.outcome(-1)))
        return found

    def _caches(self) -> list[ResultCache]:
        where = self.options.cache
        if where is None and self.options.run_dir is None:
            where = self.directory.path.parent / RESULTS
        return [ResultCache(where, evaluator, self.study.programs) for evaluator in self.evaluators] if where else []

    def _rebuild(self, record: Record) -> Candidate:
        candidate = self.study.space.decode_genes(record.genes)
        if candidate is None or candidate.key != record.key:
            raise StudyError(f"design {record.key} is not in the study's space any more")
        return candidate

    def _refuse_nothing(self, reason: str) -> None:
        """Say why there is nothing to show, when every proposal was ruled out before it could be evaluated."""
        if self.tally.done or reason != "exhausted":
            return
        self.log.sync()
        if self.screen.invalid:
            limits = ", ".join(f"{name} ({count})" for name, count in self.screen.killed.most_common(5))
            raise StudyError(
                f"all {self.screen.invalid} designs tried break a limit of the device: {limits}",
                hint=f"{self._example()}; {self.directory.log} has the violations in full",
            )
        self.screen.examine(suggest_from({}))  # any proposal shows what is wrong
        raise StudyError("no design of the space is legal", hint=self.screen.first_problem)

    def _example(self) -> str:
        """What to do about the limit that most designs break; control that depends on data is the program's matter."""
        most, _ = self.screen.killed.most_common(1)[0]
        return self.screen.examples[most] if most == "static_control" else "widen the parameters"

    def _on_violation(self, candidate: Candidate, violations: list[dict[str, str]]) -> None:
        assert self.driver is not None
        self.driver.note_violation(candidate, violations)

    def _result(self, reason: str) -> Result:
        return Result(
            self.study,
            self.tally.records,
            self.tally.final_values,
            dict(self.history.verified),
            reason,
            self.directory.path,
            dict(self.history.placed),
        )

    # -- verification -------------------------------------------------------------------------------------------------

    def _verify(self, result: Result) -> Result:
        """Verify the front; a wrong design leaves it, and what it had hidden is verified in turn."""
        while not self.stop.requested:
            pending = [d for d in result.front if d.key not in self.history.verified]
            if not pending:
                break
            for position, best in enumerate(pending):
                if self.stop.requested:
                    break
                self.reporter.verifying(position, len(pending))
                verification = self._verify_one(best.design)
                self.log.append([{"type": "verify", "key": best.key, **verification.__dict__}])
                self.history.verified[best.key] = verification
                if not verification.ok:
                    self.reporter.note(
                        f"WRONG RESULT: design {best.key} is removed from the front: {verification.message}"
                    )
            result = self._result(result.stopped)
        return result

    def _place(self, result: Result) -> Result:
        """Place the front's designs on the array: the search only asked whether they fit in number."""
        for best in result.front:
            if self.stop.requested:
                break
            if best.key in self.history.placed:
                continue
            started = time.perf_counter()
            found = best.placement
            if found is None:
                continue
            note = PlacementNote(found.placed, str(found), round(time.perf_counter() - started, 3))
            self.log.append([{"type": "place", "key": best.key, **note.__dict__}])
            self.history.placed[best.key] = note
            if not note.ok:
                self.reporter.note(f"design {best.key} cannot be placed: {note.reason}")
        return self._result(result.stopped)

    def _verify_one(self, design: Any) -> Verification:
        try:
            return self.study.verify(design, self.seed)
        except Exception as error:  # a verifier that cannot run a design has not shown it to be right
            return Verification(False, f"{type(error).__name__}: {error}", 0.0)
