"""Proof of how good a run's result is: nothing better exists, or only by so much."""

from __future__ import annotations

from typing import Literal

import msgspec


class Gap(msgspec.Struct, frozen=True):
    """Possible improvement in one objective.

    Attributes:
        share: largest improvement that an undecided design can bring, as a share of the best value found; None when
            nothing is known about it, or nothing was found.
        bound: limit of the objective over all designs, in its own unit; None when it is not known.
    """

    objective: str
    direction: Literal["minimize", "maximize"]
    share: float | None
    bound: float | None = None

    def __str__(self) -> str:
        better = "lower" if self.direction == "minimize" else "higher"
        if self.share is None and self.bound is not None:
            return f"{self.objective} cannot be {better} than {self.bound:,.6g}"
        if self.share is None:
            return f"nothing bounds {self.objective}"
        if not self.share:
            return f"{self.objective} cannot be {better}"
        return f"{self.objective} can be {percent(self.share)} {better} at most"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions about the designs of a space.

    Attributes:
        designs: number of designs in the space, as far as it was listed.
        listed: whether the whole space was listed.
        evaluated, failed: designs that were measured, and the failures among them.
        refused: designs that break a limit.
        bounded: designs ruled out without being built: by its bounds, none is better than one that was found.
        open: designs that are not decided.
        gaps: one for each objective.
        wrong: designs that failed verification; they count as no better than any other.
        unbounded: objectives about which nothing is known before a design is evaluated.
        feasible: whether a feasible design is among the decided ones.
        scope: of transformations that the space had; empty if it had none.
    """

    designs: int
    listed: bool
    evaluated: int
    failed: int
    refused: int
    bounded: int
    open: int
    gaps: tuple[Gap, ...] = ()
    wrong: int = 0
    unbounded: tuple[str, ...] = ()
    feasible: bool = True
    scope: str = ""

    @property
    def complete(self) -> bool:
        """True if every design is decided."""
        return self.listed and not self.open

    @property
    def bounds(self) -> dict[str, float]:
        """Bounds by objective; objectives without a known bound are left out."""
        return {gap.objective: gap.bound for gap in self.gaps if gap.bound is not None}

    @property
    def progress(self) -> str:
        """Short text for a line of progress."""
        if not self.listed:
            return f"{self.designs:,} designs listed"
        found = f"{self.designs - self.open:,} of {self.designs:,} decided, {self.open:,} open"
        near = [f"{g.objective} within {percent(g.share)}" for g in self.gaps if g.share]
        return "; ".join([found, *near])

    def closing_seconds(self, seconds: float, built: int) -> float | None:
        """Return the time until every design is decided, at the pace so far.

        None if the space is not listed or nothing was built yet. The estimate assumes that every open design must be
        built, but bounds decide many of them much sooner.
        """
        return seconds * self.open / built if self.listed and built else None

    def __str__(self) -> str:
        """The sentence that a run ends with."""
        if not self.complete:
            return f"not complete: {self._open}; {self._how}"
        kinds = ((self.failed, "that could not be evaluated"), (self.wrong, "that failed verification"))
        left = [f"{count:,} {kind}" for count, kind in kinds if count]
        if left and not self.feasible:
            none = f"of the space's {self.designs:,} designs none is left"
            return f"nothing is proven: {none}: {' and '.join(left)}; {self._how}"
        but = f" but for {' and '.join(left)}" if left else ""
        missing = "better" if self.feasible else "feasible"
        return f"complete{but}: none of the space's {self.designs:,} designs is {missing}; {self._how}"

    @property
    def _open(self) -> str:
        if not self.listed:
            return f"{self.designs:,} designs of the space were listed, and there are more"
        left = f"{self.open:,} of the space's {self.designs:,} designs are open"
        compromises = ": only compromises are left" if all(gap.share == 0 for gap in self.gaps) else ""
        return "; ".join([left, *([", ".join(map(str, self.gaps)) + compromises] if self.gaps else [])])

    @property
    def _how(self) -> str:
        kinds = ((self.refused, "refused by limits"), (self.bounded, "ruled out by bounds"))
        counts = [f"{self.evaluated:,} evaluated", *(f"{count:,} {kind}" for count, kind in kinds if count)]
        unknown = f" (no bounds for {', '.join(self.unbounded)})" if self.unbounded else ""
        return ", ".join(counts) + unknown + (f"; the space had {self.scope}" if self.scope else "")


def percent(share: float) -> str:
    """Rounded up, so that it stays a bound."""
    tenths = -(-share * 1000 // 1)
    return f"{tenths / 10:,.1f} %"
