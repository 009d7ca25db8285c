"""One run of a study from start to finish: set up, search, verify the front, write the results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import no_collections, rare_collections
from allo_dse.common.records import replace
from allo_dse.eval.evaluator import Evaluator, full_name, needs

from ..declare.enqueued import enqueue
from ..declare.spec import StudySpec
from ..results.result import Result
from ..search.budget import Budget, StepLeft, StopSignals
from ..search.exact import Proposer
from ..search.proposals import SAMPLERS, make_proposer
from ..search.repeats import Repeating
from ..show.output import write_best, write_front_code, write_tables
from ..show.reporter_of_run import make_reporter
from ..show.reporters import Reporter
from ..store.certificate import Certificate
from ..store.record import PlacementNote, Session, Verification
from ..store.run_info import RunInfo, StatedObjective, error_text, valid_text
from ..store.rundir import RunDirectory, default_run_dir, versions
from ..workers.executor_setup import needs_of_all, set_up_executor, unusable_here
from ..workers.ray_access import reach
from .cache import ResultCache
from .driver import Driver
from .ledger import Ledger, SideFiles
from .options import RunOptions

if TYPE_CHECKING:
    from .optuna_storage import StorageCopy

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
            seed = _begun(study, options, evaluators, directory).seed
        with (
            closing(Ledger(study, directory, evaluators)) as ledger,
            _copied(ledger, options.storage, reporter) as storage,
        ):
            for note in ledger.notes:
                reporter.note(note)
            for record in (*ledger.history.designs, *ledger.history.higher):
                if isinstance(evaluator := evaluators[record.rung], Repeating) and record.metrics is not None:
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
            result = _certified(ledger.result(stop.requested or reason), certificate, directory)
            if storage is not None:
                storage.finish(result)
            write_tables(result, directory)
            try:
                with stop.leaving():
                    if options.export:
                        write_front_code(result, directory)
                        write_best(result, directory)
            except StepLeft:
                reporter.note("best/ is not complete; the same command writes it, and all else is kept")
                result = replace(result, stopped=stop.requested)
        reporter.finish(result, ledger.screen, options.command)
        return result


def _certified(result: Result, certificate: Certificate | None, directory: RunDirectory) -> Result:
    """Add the decisions about the space to the result and to the directory."""
    if certificate is None:
        return result
    certificate = replace(certificate, wrong=len(result.wrong))
    directory.certify(certificate)
    return replace(result, certificate=certificate)


def _begun(study: StudySpec, options: RunOptions, evaluators: Sequence[Evaluator], directory: RunDirectory) -> RunInfo:
    """Compare the run with the directory and write its `run.json`, after all other checks of the request."""
    earlier = None if options.fresh else directory.earlier()
    program, device = study.fingerprint()
    sampler, source, storage = options.sampler, study.source, options.storage
    if storage is not None:
        from .optuna_storage import reach_storage, without_password

        storage = without_password(storage)
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
        storage=storage,
    )  # fmt: skip
    if options.ray_address is not None:
        reach(options.ray_address)
    else:
        unusable_here(evaluators)
    if options.storage is not None:
        reach_storage(options.storage, directory.path)
    if options.fresh:
        directory.clear()
    directory.begin(info)
    return info


def _proposer(
    ledger: Ledger, options: RunOptions, seed: int, budget: Budget, evaluator: Evaluator, reporter: Reporter
) -> Proposer:
    """Create the proposer and restore it from earlier runs."""
    study, done = ledger.study, ledger.next_number
    sizes = _sizes(study, options, evaluator)
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
        strict=options.inline, sizes=sizes, enqueued=study.enqueued,
    )  # fmt: skip
    if budget.gap is not None and (proposer.certificate() is None or ledger.lower_bounds.unbounded):
        raise StudyError(
            "gap= needs bounds of every objective", hint="a simulator has them; or end by trials or patience"
        )
    ledger.write([session])
    with no_collections():
        proposer.restore(ledger.first, ledger.history.outcome_of(ledger.scorer, ledger.tally), done)
    return proposer


def _sizes(study: StudySpec, options: RunOptions, evaluator: Evaluator) -> dict[str, int]:
    """Return the sizes of the sampler "evolution"."""
    return {**({"modelled": QUICK_MODELLED} if needs(evaluator).quick else {}), **study.sizes, **options.sizes}


def _caches(
    study: StudySpec, options: RunOptions, evaluators: Sequence[Evaluator], directory: RunDirectory
) -> list[ResultCache]:
    """Return caches of results shared with other runs, one per rung; none if disabled."""
    where = options.cache
    if where is None and options.run_dir is None:
        where = directory.path.parent / RESULTS
    return [ResultCache(Path(where), evaluator) for evaluator in evaluators] if where else []


@contextmanager
def _copied(ledger: Ledger, storage: str | None, reporter: Reporter) -> Iterator[StorageCopy | None]:
    """Copy designs to an Optuna storage meanwhile, if one is given."""
    if storage is None:
        yield None
        return
    from .optuna_storage import StorageCopy  # imported late: Optuna is slow to import

    study = ledger.study
    program, device = study.fingerprint()
    identity = {"program": program, "device": device, "evaluator": ledger.names[0], "space": study.space.describe()}
    copy = StorageCopy(storage, study, ledger.directory.path, identity)
    try:
        ledger.copy_to(copy)
        yield copy
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
    while not stop.requested:
        pending = [best for best in ledger.result("").front if best.key not in verified]
        if not pending:
            return
        for position, best in enumerate(pending):
            if stop.requested:
                return
            reporter.verifying(position, len(pending))
            verification = _verified(ledger.study, best.design, seed)
            found = replace(verification, message=valid_text(verification.message), key=best.key)
            ledger.write([found])
            verified[best.key] = found
            if not found.ok:
                what = _VERDICTS.get(found.verdict, "WRONG RESULT")
                reporter.note(f"{what}: design {best.key} is removed from the front: {found.message}", alarm=True)


_VERDICTS = {"deadlock": "DEADLOCK", "not run": "NOT VERIFIED"}


def _verified(study: StudySpec, design: Any, seed: int) -> Verification:
    try:
        return study.verify(design, seed)
    except (KeyboardInterrupt, StudyError):  # StudyError: the study's reference fails for every design
        raise
    except BaseException as error:  # a design that cannot be run is not verified
        return Verification(False, error_text(error), 0.0, kind="not run")


def _place(ledger: Ledger, reporter: Reporter, stop: StopSignals) -> None:
    """Place the front's designs on the array; the search only checked their counts against the limits."""
    placed = ledger.history.placed
    for best in ledger.result("").front:
        if stop.requested:
            return
        if best.key in placed:
            continue
        started = time.perf_counter()
        found = best.placement
        if found is None:
            continue
        note = PlacementNote(found.placed, str(found), round(time.perf_counter() - started, 3), best.key)
        ledger.write([note])
        placed[best.key] = note
        if not note.ok:
            reporter.note(f"design {best.key} cannot be placed: {note.reason}")
