"""The ladder of evaluators: which designs a more expensive evaluator measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.errors import StudyError

from ..store.record import Record
from .front import Points, pareto_positions
from .tally import Tally

if TYPE_CHECKING:
    import optuna

    from allo_dse.eval.evaluator import Evaluator


@dataclass(frozen=True)
class Rung:
    """A more expensive evaluator, and which designs of the rung below it measures: the front, and the best others.

        Study(..., rungs=[Rung(CoSimulation, best=0.02, at_most=50)])

    Args:
        evaluator: an evaluator, its class, or a function that makes it.
        front: promote the Pareto front of the rung below.
        best: promote this share of the rung below (its feasible designs), the front included.
        at_most: how many designs to promote in all.
        pruner: a pruner of Optuna, which may keep designs from going up: to it each is a trial whose first objective is
            reported at every rung.
    """

    evaluator: Evaluator | Callable[[], Evaluator]
    front: bool = True
    best: float = 0.05
    at_most: int = 100
    pruner: optuna.pruners.BasePruner | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.best <= 1:
            raise StudyError(f"Rung(best={self.best}): expected a share from 0 to 1", hint="best=0.05 promotes 5 %")
        if self.at_most < 1:
            raise StudyError(f"Rung(at_most={self.at_most}) promotes nothing", hint="leave the rung out instead")


def as_rung(given: Rung | Evaluator | Callable[[], Evaluator]) -> Rung:
    """A rung, or one for an evaluator: with `top`, the best so many designs go up to it."""
    if isinstance(given, Rung):
        return given
    top = getattr(given, "top", None)
    return Rung(given) if top is None else Rung(given, best=1.0, at_most=top)


def promoted(rung: Rung, values: Mapping[str, tuple[float, ...]], signs: tuple[float, ...]) -> list[str]:
    """The designs to promote, the most promising first.

    Designs are ordered by layers (the front, the front of the rest, ...), and within a layer by their distance from the
    ideal point when each objective spans 0 to 1.

    Args:
        values: objective values of the feasible designs of the rung below, by key.
        signs: factors that turn values into losses.
    """
    if not values:
        return []
    keys = list(values)
    losses = np.array([values[key] for key in keys], float) * np.array(signs)
    wanted = min(len(keys), math.ceil(rung.best * len(keys)), rung.at_most)
    layer = _by_distance(losses, np.array(pareto_positions(losses)))
    chosen = layer if rung.front else layer[:wanted]
    left = np.setdiff1d(np.arange(len(keys)), layer)
    while len(chosen) < wanted and len(left):
        layer = left[pareto_positions(losses[left])]
        chosen = np.concatenate([chosen, _by_distance(losses, layer)[: wanted - len(chosen)]])
        left = np.setdiff1d(left, layer)
    return [keys[position] for position in chosen[: rung.at_most]]


def _by_distance(losses: Points, positions: np.ndarray) -> np.ndarray:
    low, high = losses.min(0), losses.max(0)
    scaled = (losses[positions] - low) / np.where(high > low, high - low, 1.0)
    return positions[np.argsort((scaled**2).sum(1), kind="stable")]


class Gate:
    """What a pruner of Optuna lets go up: a trial per design, which ends at the last rung.

    Args:
        last: number of the highest rung.
    """

    def __init__(self, pruner: optuna.pruners.BasePruner, last: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study, self._last = optuna.create_study(direction="minimize", pruner=pruner), last
        self._trials: dict[str, optuna.Trial] = {}
        self._reported: set[tuple[int, str]] = set()

    def passed(self, keys: Sequence[str], losses: Callable[[int], Mapping[str, float]], below: int) -> list[str]:
        """Those of the designs that the pruner does not stop.

        Args:
            losses: of all designs that a rung has measured.
            below: the rung that the designs would leave.
        """
        for number in (*range(below + 1), self._last):
            for key, loss in losses(number).items():
                if (number, key) not in self._reported:
                    self._report(number, key, loss)
        return [key for key in keys if not self._trials[key].should_prune()]

    def _report(self, number: int, key: str, loss: float) -> None:
        self._reported.add((number, key))
        if key not in self._trials:
            self._trials[key] = self._study.ask()
        if number < self._last:
            self._trials[key].report(loss, number)
        else:
            self._study.tell(self._trials[key], loss)


class Ladder:
    """Which designs go up, and when.

    Args:
        rungs: above the first; None for one that cannot be used.
    """

    def __init__(
        self,
        rungs: Sequence[Rung | None],
        tally: Tally,
        signs: Sequence[float],
    ) -> None:
        self._rungs = rungs
        self._tally = tally
        self._signs = tuple(signs)
        self._gates = {n: Gate(rung.pruner, len(rungs)) for n, rung in enumerate(rungs, 1) if rung and rung.pruner}
        self._sent: dict[int, set[str]] = {n: set(tally.rungs.get(n, ())) for n in range(1, len(rungs) + 1)}

    @property
    def usable(self) -> list[int]:
        """Rungs above the first that can be used."""
        return [n for n, rung in enumerate(self._rungs, 1) if rung is not None]

    def next(self, number: int, room: int, *, over: bool) -> list[Record]:
        """Up to `room` designs to promote to a rung.

        Args:
            over: whether the rung below has seen everything it will see. Until then only its front goes up, and at most
                half of what may be promoted: the first fronts of a search are not worth much.
        """
        rung = self._rungs[number - 1]
        sent = self._sent[number]
        if rung is None or room <= 0:
            return []
        left = rung.at_most - len(sent)
        if over:
            below = max((n for n in (0, *self.usable) if n < number), default=0)
            keys = promoted(rung, self._tally.feasible(below), self._signs)
            if number in self._gates:
                new = [key for key in keys if key not in sent]
                keys = self._gates[number].passed(new, self._losses, below)
        else:
            left -= rung.at_most // 2
            settled = rung.front and number == 1 and self._tally.front.reference is not None
            keys = list(self._tally.front.keys) if settled else []
        chosen = [key for key in keys if key not in sent][: max(0, min(room, left))]
        sent.update(chosen)
        return [self._tally.record(key) for key in chosen]

    def _losses(self, number: int) -> dict[str, float]:
        """The first objective's losses of the designs that a rung found feasible."""
        return {key: self._signs[0] * values[0] for key, values in self._tally.feasible(number).items()}

    def spare(self, number: int, key: str) -> bool:
        """Leave a design out because its result at a rung has come from elsewhere; False when it was promoted."""
        if key in self._sent[number]:
            return False
        self._sent[number].add(key)
        return True
