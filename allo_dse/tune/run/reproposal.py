"""Repetition of a log's proposals: with one worker and the same seed, the same designs in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import JsonObject
from allo_dse.eval.evaluator import full_name

from ..declare.spec import StudySpec
from ..search.proposals import make_proposer
from ..search.proposer import Proposer
from ..search.scoring import Scorer
from ..search.screening import Screen
from ..store.log import Log
from ..store.record import Record, Session, decode_entry
from .restore import read_history


@dataclass
class Reproposal:
    """Progress and findings of making the proposals again.

    Attributes:
        proposed: logged designs that were proposed again in their turn.
        violations: the same, for designs that broke a device limit.
        difference: description of the first difference; empty while there is none.
        skipped: designs of runs whose proposals cannot be made again, by reason.
        stopped: reason for an early end.
    """

    proposed: int = 0
    violations: int = 0
    difference: str = ""
    skipped: Counter[str] = field(default_factory=Counter)
    stopped: str = ""

    def to_dict(self) -> JsonObject:
        """For machines."""
        return {**self.__dict__, "skipped": dict(self.skipped)}


class _LoggedRun(Struct, frozen=True):
    """One run of a log: how it proposed, the number of lines before it, and its own records."""

    how: Session | None
    before: int
    designs: list[Record]
    violations: list[Record]

    @property
    def obstacle(self) -> str:
        """Why its proposals cannot be made again; empty when they can."""
        if not self.how:
            return "the log does not say how they were proposed"
        if not self.how.strict:
            return "proposed for several workers, in the order of their results"
        if not self.how.named:
            return f"the sampler {self.how.sampler} was given as an object"
        return ""


def propose_again(study: StudySpec, lines: Log, stop_requested: Callable[[], str]) -> Reproposal:
    """Make a log's proposals again with the results that it holds. Nothing is evaluated.

    Args:
        lines: intact lines of the log.
        stop_requested: called before every design; returns a reason to stop, or an empty text.
    """
    found = Reproposal()
    for run in _runs(lines):
        if found.difference or found.stopped or not run.designs:
            continue
        if run.how is None or run.obstacle:
            found.skipped[run.obstacle] += len(run.designs)
        else:
            _repeat(study, lines, run, run.how, found, stop_requested)
    return found


def _runs(lines: Log) -> Iterator[_LoggedRun]:
    run = _LoggedRun(None, 0, [], [])
    for position, line in enumerate(lines):
        entry = decode_entry(line)
        if isinstance(entry, Session):
            yield run
            run = _LoggedRun(entry, position, [], [])
        elif isinstance(entry, Record) and not entry.evaluated:
            run.violations.append(entry)
        elif isinstance(entry, Record) and not entry.rung:
            run.designs.append(entry)
    yield run


def _repeat(
    study: StudySpec, lines: Log, run: _LoggedRun, how: Session, found: Reproposal, stop_requested: Callable[[], str]
) -> None:
    """Make the proposals of one run again."""
    scorer = Scorer(study.objectives, study.constraints)
    violations: list[str] = []
    screen = Screen(study.space, study.check, study.check_soon)
    evaluators = study.make_evaluators()
    names = [full_name(evaluator) for evaluator in evaluators]
    history = read_history(lines, scorer, screen, names, run.before)
    lower_bounds = study.lower_bounds(None if history.withdrawn else evaluators[0])
    proposer = make_proposer(
        how.sampler, screen, lower_bounds, seed=how.seed, done=how.done, trials=how.trials,
        strict=True, sizes=how.sizes,
    )  # fmt: skip
    try:
        outcome_of = history.outcome_of(scorer)
        proposer.restore(history.designs.first, outcome_of, how.done)
        begun = {candidate.key for candidate in screen.new_of(how.enqueued)}  # enqueued, not proposed
        for record in run.designs:
            found.stopped = stop_requested()
            if found.stopped:
                return
            if record.key in begun:
                proposer.learn(record.key, record.genes, scorer.outcome(scorer.scored(record)))
                found.proposed += 1
                continue
            found.difference = _ask(proposer, record)
            violations += [candidate.key for candidate, _ in screen.taken()]
            found.difference = found.difference or _broken(run.violations, violations)
            if found.difference:
                return
            proposer.tell(record.number, scorer.outcome(scorer.scored(record)))
            found.proposed += 1
    except AlloDseError as error:  # the study has changed
        found.difference = error.message
    found.violations += len(violations)


def _ask(proposer: Proposer, record: Record) -> str:
    """Describe how the next proposal differs from a record; empty if it does not."""
    proposals = proposer.ask(1, 0)
    if not proposals:
        return f"proposal {record.number}: the log has {record.key} ({_params_text(record.params)}), now there is none"
    (proposal,) = proposals
    candidate = proposal.candidate
    if (proposal.number, candidate.key) == (record.number, record.key):
        return ""
    number = "" if proposal.number == record.number else f"number {proposal.number}, "
    return (
        f"proposal {record.number}: the log has {record.key} ({_params_text(record.params)}), "
        f"now it is {number}{candidate.key} ({_params_text(candidate.params)})"
    )


def _broken(before: Sequence[Record], now: Iterable[str]) -> str:
    """Describe a difference in the designs that broke a device limit; empty if there is none."""
    for position, key in enumerate(now):
        if position >= len(before) or before[position].key != key:
            then = before[position].key if position < len(before) else "none"
            return f"design {position + 1} of those that break a device limit: the log has {then}, now it is {key}"
    return ""


def _params_text(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
