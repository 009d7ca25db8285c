"""Screening of proposals before they cost an evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.eval.backend import with_rewrite
from allo_dse.mapper.violation import Violation
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.design import Design
from allo_dse.space.genes import Genes, Suggest, random_suggest, suggest_from
from allo_dse.space.space import Candidate, Space

from .early_stop import UNMET

Check = Callable[[Design], Sequence[Any]]
IsDominated = Callable[[Design], bool]
InWords = dict[str, str]
"""A violation as the log has it."""
Verdict = Literal["new", "repeat", "invalid", "illegal", "dominated"]
MOST_REWRITES = 3  # limits that an error without designs lists
FOLDING_RULES = "folding rules"  # name of the constraint that an unfoldable design breaks
MOST_INVALID = 20_000  # invalid designs in a row before a run without any legal design gives up
SPARSE = 8  # refused designs per legal one above which proposals are repaired: drawing on costs more checks
REPAIRS = 128  # changes to try


class Screen:
    """Selects new and legal designs, and counts the reasons against all others.

    Args:
        check: the device's limits; returns violations with a `constraint` name.
        soon: the limits that are cheapest to check.

    Attributes:
        killed: number of distinct designs that each constraint has ruled out (a design may break several).
        invalid: number of distinct designs that broke a limit.
        has_others: whether designs may be known that did not come from listing the space: proposed or enqueued ones.
        legal: genes of the last design that keeps the limits.
        meanwhile: called often while proposals are made; returns whether time is up.
        repeats, illegal: proposals of known designs; proposals without a corresponding design.
    """

    def __init__(self, space: Space, check: Check, soon: Check = lambda design: ()) -> None:
        self.space = space
        self._check, self._soon = check, soon
        self._refused_soon = 0  # refused by cheap limits, less those that these limits let through
        self._broken: list[tuple[Candidate, list[InWords]]] = []
        self._known: set[str] = set()
        self.has_others = False
        self.meanwhile: Callable[[], bool] = lambda: False
        self.killed: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # text of the first violation, by constraint
        self.invalid = 0
        self.repeats = 0
        self.illegal = 0
        self._samples: dict[str, tuple[Violation, Design]] = {}  # least violation, by constraint, with its design
        self._common: set[tuple[Any, ...]] | None = None  # violations of all refused designs
        self.first_problem = ""
        self._rest: Iterator[Candidate] | None = None
        self._refused = 0
        self._excess = (0, 0.0)  # of the last refused design: less the checks that it passed, and by how much it failed
        self.legal: Genes | None = None

    def remember(self, key: str, violations: Iterable[InWords] | None, genes: Genes) -> None:
        """Take over a design that an earlier run evaluated or found invalid."""
        self._known.add(key)
        self.has_others = True
        if violations is None:
            self.legal = genes
        else:
            self._count(violations)

    def knows(self, key: str) -> bool:
        """Return whether a design was proposed before."""
        return key in self._known

    def new_of(self, enqueued: Sequence[Genes]) -> list[Candidate]:
        """Return the enqueued designs that are new and legal; they count as known from now on."""
        self.has_others |= bool(enqueued)
        decoded = map(self.space.decode_genes, enqueued)
        return [candidate for candidate in decoded if candidate is not None and self.admit(candidate) == "new"]

    def decode_unless(self, is_dominated: IsDominated | None, suggest: Suggest) -> Candidate | Literal[False] | None:
        """Decode and screen a proposal, and repair one that breaks a limit if most do; None unless it is new and legal.

        False for an unknown design that is dominated and stays unknown.

        Raises:
            StudyError: when no design seems to keep the limits.
        """
        candidate, verdict = self.decode_and_admit(suggest, is_dominated)
        if verdict == "invalid" and candidate is not None:
            self._raise_if_none_is_legal()
            sparse = self.invalid > SPARSE * (len(self._known) - self.invalid)
            return self._repaired(candidate) if sparse else None
        return False if verdict == "dominated" else candidate if verdict == "new" else None

    def _repaired(self, refused: Candidate) -> Candidate | None:
        """Return a new and legal design near a refused one.

        Keeps random genes of the refused design and takes the others from the last legal one: half at first, more of
        them after a design that breaks a limit, one less after a known one. Before one is known, it takes the least
        values instead, as kernels then share no nodes. Then it changes one or two genes. A change is kept if the design
        fails no earlier check and exceeds its limits by no more: constraint domination of K. Deb, "An efficient
        constraint handling method for genetic algorithms", Comput. Methods Appl. Mech. Eng. 186, 2000.
        """
        rng, least = np.random.default_rng(list(refused.key.encode())), self._excess
        names = np.array(sorted(refused.genes))
        legal = self.legal or {name: self.space.genes[name].low for name in names}
        kept = len(names) // 2
        for step in range(REPAIRS if refused.genes else 0):
            if self.legal is not None and self.meanwhile():
                break
            if self.legal or step < len(names).bit_length():
                taken = rng.permutation(names)[kept:].tolist()
                near = {name: legal[name] for name in taken if name in legal}
            else:
                near = {name: self.space.genes[name].draw(rng) for name in rng.choice(names, rng.integers(1, 3))}
            candidate, verdict = self.decode_and_admit(suggest_from(refused.genes | near, random_suggest(rng)))
            if verdict == "new":
                return candidate
            kept = min(len(names), kept + 1) if verdict == "repeat" else kept // 2
            if verdict == "invalid" and candidate is not None:
                self._raise_if_none_is_legal()
                if not self.legal and self._excess <= least:
                    refused, least = candidate, self._excess
        return None

    def decode_and_admit(
        self, suggest: Suggest, is_dominated: IsDominated | None = None
    ) -> tuple[Candidate | None, Verdict]:
        """Decode and classify a proposal."""
        self.has_others = True
        try:
            candidate = self.space.decode(suggest)
        except AlloDseError as error:  # e.g. a program that does not compile for these parameters
            self.illegal += 1
            self.first_problem = self.first_problem or str(error)
            return None, "illegal"
        if candidate is None:
            self.illegal += 1
            return None, "illegal"
        if is_dominated is not None and not self.knows(candidate.key):
            if self.refuses_soon(candidate):
                return candidate, "invalid"
            if is_dominated(candidate.design):
                return candidate, "dominated"
        return candidate, self.admit(candidate)

    def admit(self, candidate: Candidate) -> Verdict:
        """Classify a design as new, repeated or invalid; a new one counts as known from now on."""
        key = candidate.key
        if key in self._known:
            self.repeats += 1
            return "repeat"
        if self._refuses(candidate, (self._check_soon, self._check)):
            return "invalid"
        self._known.add(key)
        self.legal = candidate.genes
        return "new"

    def refuses_soon(self, candidate: Candidate) -> bool:
        """Return whether an unknown design breaks a limit that is cheap to check; it then counts as known.

        Skipped when most designs keep these limits: the other checks do not cost much more.
        """
        return self._refused_soon > 0 and self._refuses(candidate, (self._check_soon,))

    def _refuses(self, candidate: Candidate, checks: Iterable[Check]) -> bool:
        violations = self._violations(candidate, checks)
        if violations:
            self._known.add(candidate.key)
            self._count(violations)
            self._broken.append((candidate, violations))
        return bool(violations)

    def _check_soon(self, design: Design) -> Sequence[Any]:
        found = self._soon(design)
        self._refused_soon += 1 if found else -1
        return found

    def any_new(self, rng: np.random.Generator) -> Candidate | None:
        """Return a new and legal design for a sampler that finds none; None when all are known, or time is up.

        Designs in the order of the space alternate with random ones. This soon completes a small space and does not
        neglect most of a large one. The choice depends only on the known designs, so that runs can be resumed.

        Raises:
            StudyError: when no design seems to keep the limits.
        """
        if self._rest is None:
            self._rest = self.space.designs()
        for candidate in self._rest:
            if self.legal is not None and self.meanwhile():
                return None
            if self.knows(candidate.key):
                continue
            if (verdict := self.admit(candidate)) == "new":
                self.space.learn(candidate.genes)
                return candidate
            if verdict == "invalid":
                self._raise_if_none_is_legal()
            if drawn := self.decode_unless(None, random_suggest(rng)):
                return drawn
        return None

    def _raise_if_none_is_legal(self) -> None:
        self._refused += 1
        if self.legal is not None or self._refused < (UNMET if self._common else MOST_INVALID):
            return
        name, count = self.killed.most_common(1)[0]
        raise StudyError(
            f"none of {self.invalid:,} designs keeps the limits: {name} rules out {count / self.invalid:.0%}",
            hint=self.advice,
        )

    @property
    def advice(self) -> str:
        """The limits that most designs break, in words, each with a rewrite where one is known."""
        most, _ = self.killed.most_common(1)[0]
        lines, known = [], False
        for name, _ in self.killed.most_common(MOST_REWRITES):
            text = self.examples[name]
            if name in self._samples:
                violation, design = self._samples[name]
                text = with_rewrite(violation, design.program, design.device)
                known |= text != str(violation)
            lines.append(f"  {text}")
        if most == "static_control":
            does = "no other design helps: change the program, or give the study inputs= to time designs on"
        elif known:
            does = "rewrite the program; each line names a limit and, where one is known, a rewrite that keeps it"
        else:
            does = "widen the parameters; a smaller program or a larger device"
        return "\n".join([does, *lines])

    def refusal(self) -> StudyError:
        """Return the reason why an exhausted space has no legal design, with rewrites as its hint."""
        parameters = parameters_of(self.space)
        if self.invalid and not (parameters and parameters.none_built):
            limits = ", ".join(f"{name} ({count})" for name, count in self.killed.most_common(5))
            message = f"all {self.invalid} designs tried break a limit of the device: {limits}"
            return StudyError(message, hint=self.advice)
        self.decode_and_admit(suggest_from({}))  # any proposal shows the problem
        if parameters is not None and (refused := parameters.refused):
            message = f"none of {sum(map(len, refused)):,} programs can be built: {reasons(refused)}"
            return StudyError(message, hint=_in_words(*parameters.rewrites()))
        return StudyError("no design of the space is legal", hint=self.first_problem)

    def taken(self) -> list[tuple[Candidate, list[InWords]]]:
        """Return the invalid designs found since the last call, with their violations."""
        broken, self._broken = self._broken, []
        return broken

    def _violations(self, candidate: Candidate, checks: Iterable[Check]) -> list[InWords]:
        """Return the violations found by the first check that finds any."""
        try:
            results = ((passed, check(candidate.design)) for passed, check in enumerate(checks))
            passed, found = next((result for result in results if result[1]), (0, ()))
        except AlloDseError as error:
            self._common, self._excess = set(), (1, 0.0)
            return [{"constraint": FOLDING_RULES, "text": error.message}]
        limits = [v for v in found if isinstance(v, Violation)]
        self._excess = -passed, math.fsum(map(excess, found))
        if found:
            same = {(v.constraint, v.needed, v.limit, v.detail) for v in limits}
            self._common = same if self._common is None else self._common & same
        for v in limits:
            if v.constraint not in self._samples or v.needed < self._samples[v.constraint][0].needed:
                self._samples[v.constraint] = v, candidate.design
        return [{"constraint": str(v.constraint), "text": str(v)} for v in found]

    def _count(self, violations: Iterable[InWords]) -> None:
        self.invalid += 1
        first = {v["constraint"]: v.get("text", "") for v in violations}
        self.killed.update(first.keys())
        self.examples = {**first, **self.examples}


def _in_words(params: Mapping[str, object], rewrites: Sequence[str]) -> str:
    if not rewrites:
        return "change what is named there, widen the parameters, or search for another target"
    of = ", ".join(f"{name}={value}" for name, value in params.items()) or "the program"
    return "\n".join([f"rewrite what stands against {of}, the fewest reasons:", *(f"  {one}" for one in rewrites)])


def excess(violation: Any) -> float:
    """Return the excess over a limit as a share of it; 1 if nothing is counted."""
    needed, limit = getattr(violation, "needed", 0), getattr(violation, "limit", 0)
    return float(needed / limit - 1) if needed > limit > 0 else 1.0


def reasons(kinds: Sequence[Sequence[str]]) -> str:
    """Return reasons in words, kind by kind, each with its number."""
    return "; ".join(f"{len(alike):,} as {alike[0]}" for alike in kinds)
