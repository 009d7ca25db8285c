"""Estimate of a run: size of the space, share of it that is ruled out, time to close it.

Nothing is written. Designs are evaluated only by a fast evaluator with bounds, such as a simulator.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import msgspec

from allo_dse.common.records import JsonObject

from ..declare.spec import StudySpec
from ..search.proposals import make_proposer
from ..search.scoring import Scorer
from ..search.screening import Screen
from ..show.run_view import format_duration
from ..store.certificate import Certificate
from ..store.record import Measurement, record_of
from ..workers.evaluate_one import InProcessEvaluator
from .options import RunOptions

MOST_COUNTED = 1_000_000
LOOKED_AT = 64  # designs to check if there are no bounds
SECONDS = 5.0


@dataclass(frozen=True)
class SpaceEstimate:
    """Estimate of the work before a run.

    Attributes:
        designs: number of designs in the space; None if there are more than `MOST_COUNTED`.
        sampler: name of the sampler that would propose designs.
        looked_at, refused: designs that were checked, and how many of them break a limit.
        listing_seconds, seconds: time until the first design was proposed, and time spent deciding designs.
        certificate: decisions in that time; None if the sampler makes none.
        refusal: why all designs met so far are refused, and what to rewrite; empty if one is legal.
        about: estimate of the number of designs, and its standard error.
    """

    study: str
    designs: int | None
    sampler: str
    looked_at: int
    refused: int
    listing_seconds: float
    seconds: float
    certificate: Certificate | None
    refusal: str = ""
    about: tuple[float, float] = (0.0, 0.0)

    @property
    def closing_seconds(self) -> float | None:
        """Estimated time to close the space, if open designs take as long as those decided so far."""
        found = self.certificate
        left = None if found is None else found.closing_seconds(self.seconds, found.evaluated + found.refused)
        return None if left is None else self.listing_seconds + self.seconds + left

    def __str__(self) -> str:
        size = (
            "about {:,.2g} (standard error {:,.2g})".format(*self.about)
            if self.designs is None
            else f"{self.designs:,}"
        )
        lines = [f"{self.study}: a space of {size} designs, searched by {self.sampler}"]
        if self.certificate is not None:
            lines.append(f"in {format_duration(self.listing_seconds + self.seconds)}: {self.certificate}")
            if self.closing_seconds is not None:
                lines.append(f"to close the space: at most about {format_duration(max(1.0, self.closing_seconds))}")
        elif self.looked_at:
            share = 100 * self.refused / self.looked_at
            lines.append(f"of {self.looked_at:,} designs looked at, {share:.0f} % break a limit")
        if self.refusal:
            lines.append(self.refusal)
        return "\n".join([*lines, "nothing was written"])

    def to_dict(self) -> JsonObject:
        """For machines."""
        certificate = None if self.certificate is None else msgspec.to_builtins(self.certificate)
        return {**vars(self), "certificate": certificate, "closing_seconds": self.closing_seconds}


def estimate_space(study: StudySpec, options: RunOptions) -> SpaceEstimate:
    """Look at a study's space for some seconds.

    Raises:
        StudyError: for an unknown sampler.
    """
    began = time.monotonic()
    evaluator, screen = study.make_evaluator(), Screen(study.space, study.check, study.check_soon)
    study.check_metric_names([evaluator])
    budget = options.budget(study.trials, study.objectives, has_rungs=bool(study.rungs))
    lower_bounds = study.lower_bounds(evaluator)
    proposer = make_proposer(
        options.sampler, screen, lower_bounds,
        seed=options.seed or 0, done=0, trials=budget.trials, strict=True, sizes={**study.sizes, **options.sizes},
    )  # fmt: skip
    scorer, looked_at, listed = Scorer(study.objectives, study.constraints), 0, began
    if proposer.certificate() is not None and not lower_bounds.unbounded:
        proposals = proposer.ask(1, 0)
        listed, unknown = time.monotonic(), Measurement(evaluator=evaluator.name)
        while proposals:
            (proposal,) = proposals
            found = InProcessEvaluator(evaluator, unknown, interruptible=True).run(0, proposal.candidate)
            proposer.tell(proposal.number, scorer.outcome(scorer.scored(record_of(proposal.candidate, found))))
            proposals = proposer.ask(1, 0) if time.monotonic() - listed < SECONDS else []
    else:
        for candidate in itertools.islice(study.space.designs(), LOOKED_AT):
            screen.admit(candidate)
            looked_at += 1
    return SpaceEstimate(
        study=study.name,
        designs=study.space.count(MOST_COUNTED, lambda: time.monotonic() - listed > 2 * SECONDS),
        about=study.space.estimate(),
        sampler=proposer.name,
        looked_at=looked_at,
        refused=screen.invalid,
        listing_seconds=listed - began,
        seconds=time.monotonic() - listed,
        certificate=None if looked_at else proposer.certificate(),
        refusal=str(screen.refusal()) if screen.legal is None else "",
    )
