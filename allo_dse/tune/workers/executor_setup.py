"""Setup of evaluation: in this process, in child processes, or by workers on this machine or a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.eval.evaluator import Evaluator, Needs, full_name, needs, why_unavailable

from ..declare.spec import StudySpec
from ..search.budget import parse_duration
from .evaluate_one import INLINE_WORKER, make_rung_evaluator
from .executor import Executor, InlineExecutor


class ExecutorSetup(Struct, frozen=True):
    """An executor, and which rungs it can serve.

    Attributes:
        notes: messages for the start of a run about rungs that it cannot serve.
    """

    executor: Executor
    usable: list[bool]
    notes: list[str]


def needs_of_all(evaluators: Sequence[Evaluator], deadlines: Mapping[str, str | float]) -> list[Needs]:
    """Return the needs of each evaluator, with deadlines overridden by the given ones.

    Args:
        deadlines: limit per design, by an evaluator's name, or under "" for all. An evaluator with a deadline gets a
            process of its own.

    Raises:
        StudyError: for a name that no evaluator has, or a text that is not a duration.
    """
    names = [evaluator.name for evaluator in evaluators]
    unknown = [name for name in deadlines if name and name not in names]
    if unknown:
        raise StudyError(
            f"a deadline for {unknown[0]!r}: the study has no such evaluator", hint=f"it has {', '.join(names)}"
        )
    asked = []
    for evaluator in evaluators:
        deadline = deadlines.get(evaluator.name, deadlines.get(""))
        own = needs(evaluator)
        if deadline is not None:
            own = replace(own, deadline_s=parse_duration(deadline, "a deadline"), isolate=True)
        asked.append(own)
    return asked


def set_up_executor(
    study: StudySpec,
    evaluators: Sequence[Evaluator],
    asked: Sequence[Needs],
    workers: int | None,
    address: str | None,
) -> ExecutorSetup:
    """Set up the evaluation of a study.

    Args:
        asked: needs of each evaluator.
        workers: number of workers; by default this process alone, or one per CPU of the cluster if there is an address.

    Raises:
        StudyError: if no worker can run the evaluator of every design, or the cluster cannot be reached.
    """
    executor: Executor
    if workers in (None, 1) and address is None:
        problems = unusable_here(evaluators)
        executor = InlineExecutor(
            [
                make_rung_evaluator(study, n, e, worker=INLINE_WORKER, asked=asked[n]) if not problems[n] else None
                for n, e in enumerate(evaluators)
            ]
        )
    else:
        from .ray_executor import RayExecutor

        ray_workers = RayExecutor(study, asked, workers, address)
        executor, problems = ray_workers, ray_workers.problems
        try:
            _refuse_first(evaluators, problems)
        except BaseException:
            executor.close()
            raise
    notes = [
        f"rung {n} ({full_name(evaluators[n])}) is left out: {problem}; the other rungs go on"
        for n, problem in enumerate(problems)
        if problem
    ]
    return ExecutorSetup(executor, [not p for p in problems], notes)


def unusable_here(evaluators: Sequence[Evaluator]) -> list[str | None]:
    """Return, for each evaluator, why it cannot run on this machine; None if it can.

    Raises:
        StudyError: if the evaluator of every design cannot.
    """
    problems = [why_unavailable(evaluator) for evaluator in evaluators]
    _refuse_first(evaluators, problems)
    return problems


def _refuse_first(evaluators: Sequence[Evaluator], problems: Sequence[str | None]) -> None:
    if problems[0]:
        raise StudyError(f"the evaluator {full_name(evaluators[0])} cannot run: {problems[0]}")
