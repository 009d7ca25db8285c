"""Who evaluates a study's designs: this process, its child processes, or workers on this machine or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import StudyError
from ..eval.evaluator import Evaluator, full_name, needs, why_unavailable
from .bench import make_bench
from .executor import Executor, InlineExecutor
from .spec import StudySpec


@dataclass(frozen=True)
class Workforce:
    """An executor, and which rungs of the ladder it can serve.

    Attributes:
        notes: what to say at the start about rungs that it cannot.
    """

    executor: Executor
    usable: list[bool]
    notes: list[str]


def recruit(study: StudySpec, evaluators: Sequence[Evaluator], workers: int | None, address: str | None) -> Workforce:
    """Those who evaluate.

    Args:
        workers: by default this process, or with an address one per CPU of the cluster.

    Raises:
        StudyError: when the evaluator of every design can run nowhere, or the cluster cannot be reached.
    """
    if workers in (None, 1) and address is None:
        problems = [why_unavailable(evaluator) for evaluator in evaluators]
        notes = _notes(evaluators, problems)
        benches = [make_bench(study, n, e) if not problems[n] else None for n, e in enumerate(evaluators)]
        return Workforce(InlineExecutor(benches), [not p for p in problems], notes)
    from .ray_executor import RayExecutor

    executor = RayExecutor(study, [needs(e) for e in evaluators], workers, address)
    try:
        problems = executor.problems
        notes = _notes(evaluators, problems)
    except BaseException:
        executor.close()
        raise
    return Workforce(executor, [not p for p in problems], notes)


def _notes(evaluators: Sequence[Evaluator], problems: Sequence[str | None]) -> list[str]:
    """What to say about evaluators that cannot be used."""
    if problems[0]:
        raise StudyError(f"the evaluator {full_name(evaluators[0])} cannot run: {problems[0]}")
    return [
        f"rung {n} ({full_name(evaluators[n])}) is left out: {problem}; the other rungs go on"
        for n, problem in enumerate(problems)
        if problem
    ]
