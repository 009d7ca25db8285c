"""Promotion of designs to more expensive evaluators, as in successive halving."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.space.genes import Gene, Genes
from allo_dse.space.sampler.acquisition import log_gain, magnitude
from allo_dse.space.sampler.pareto import Booleans, Floats, Integers, pareto_positions
from allo_dse.space.sampler.surrogate import Features, Surrogate, as_rows, fitted_scales, one_thread, prior_scales

from ..store.record import Record

if TYPE_CHECKING:
    import optuna

    from allo_dse.eval.evaluator import Evaluator
    from allo_dse.space.design import Design

    from .scoring import Values
    from .tally import Tally

# Prediction of an expensive evaluator's results from those of other designs.
#
# The cheaper evaluator is assumed to be right up to a factor that depends on the design: a Gaussian process over its
# genes and the cheaper values (two fidelities, as in M. Kennedy and A. O'Hagan, "Predicting the output from a complex
# computer code when fast approximations are available", Biometrika 87(1), 2000). A second process predicts failures.


# `benchmarks/promotion.py` measures these settings together.
FEWEST = 3  # measured designs to learn from
MOST = 128  # most of them: a fit then takes 0.1 s, and its time grows with their cube
EXACT = 1e-9  # standard deviation up to which residuals are rounding

Losses = tuple[float, ...]


class MultiFidelityModel:
    """Prediction of a rung's results. It does not depend on the order of the designs.

    Args:
        genes: genes of each design, by key.
        ranges: range of each gene.
        below: losses measured by the rung below, for all these designs.
        measured: losses measured by the rung itself, for some of them; None for a failed or infeasible design.
    """

    def __init__(
        self,
        genes: Mapping[str, Genes],
        ranges: Mapping[str, Gene],
        below: Mapping[str, Losses],
        measured: Mapping[str, Losses | None],
    ) -> None:
        self.keys = sorted(below)
        self._row = {key: n for n, key in enumerate(self.keys)}
        known = sorted(key for key in measured if key in self._row)
        values = {key: losses for key in known if (losses := measured[key]) is not None}
        predicted = np.array([below[key] for key in self.keys], float)
        found = np.array(list(values.values()), float).reshape(len(values), predicted.shape[1])
        self._scales = [_Scale.of(np.concatenate(both)) for both in zip(predicted.T, found.T, strict=True)]
        self._prior, self._measured = self._scaled(predicted), self._scaled(found)
        self._known, self._held = self._rows(known), self._rows(list(values))
        designs = [genes[key] for key in self.keys]
        names = sorted({name for design in designs for name in design})
        kinds = [ranges[name] for name in names]
        rows = as_rows(designs, names, kinds)
        features, span = Features.of(rows, kinds), np.ptp(self._prior, 0)
        numbers = ((self._prior - self._prior.min(0)) / np.where(span > 0, span, 1.0))[:, span > 0]
        self._coded = np.hstack((features.encode(rows), numbers))
        self._categorical = np.append(features.categorical, np.zeros(numbers.shape[1], bool))
        excess = self._measured - self._prior[self._held]
        mean = excess.mean(0) if len(excess) else np.zeros(excess.shape[1])
        with one_thread():
            rows = self._training_rows(self._held)
            self._excess = [self._process(self._held[rows], *of) for of in zip(excess[rows].T, mean, strict=True)]
            self.means = self._prior + self._expected(self._coded, self._coded[:0])[0]
            self.probability = self._success_probability()

    def _process(self, rows: Integers, values: Floats, mean: float, fewest: int = FEWEST) -> _Process:
        return _Process(self._coded[rows], self._categorical, values, mean, fewest)

    def _rows(self, keys: Sequence[str]) -> Integers:
        return np.array([self._row[key] for key in keys], np.int64)

    def _scaled(self, losses: Floats) -> Floats:
        return np.stack([scale.to(column) for scale, column in zip(self._scales, losses.T, strict=True)], 1)

    def _training_rows(self, measured: Integers) -> Integers:
        """Select the designs to learn from: if there are many, the best by the rung below."""
        prior = self._prior[measured]
        total = ((prior - prior.mean(0)) / np.maximum(prior.std(0), EXACT)).sum(1) if len(prior) else np.zeros(0)
        return np.sort(np.argsort(np.round(total, 7), kind="stable")[:MOST])

    def _success_probability(self) -> Floats:
        """Probability that each design neither fails nor breaks a constraint."""
        holds = np.isin(self._known, self._held)
        if holds.all():
            return np.ones(len(self.keys))
        rest = 1 / (len(holds) + 2)  # nothing is impossible, or certain
        mean = rest + (1 - 2 * rest) * holds.mean()
        rows = self._training_rows(self._known)
        predicted, _ = self._process(self._known[rows], holds[rows].astype(float), mean, 1).predict(
            self._coded, self._coded[:0]
        )
        probability: Floats = np.clip(predicted, rest, 1 - rest)
        return probability

    def _expected(self, coded: Floats, pending: Floats) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the excess over the prediction, (designs, objectives).

        Pending designs count as measured with their expected values.
        """
        found = [process.predict(coded, pending) for process in self._excess]
        means, deviations = (np.stack(of, 1) for of in zip(*found, strict=True))
        return means, deviations

    def best(self, count: int, among: Collection[str], under_way: Collection[str] = ()) -> list[str]:
        """Return the designs to measure next: those with the largest expected gain in hypervolume.

        The gain is weighted by the probability that the design does not fail. Each choice assumes that earlier choices
        and running measurements turn out as expected (D. Ginsbourger et al., "Kriging is well-suited to parallelize
        optimization", 2010).

        Args:
            among: keys of candidates.
            under_way: keys of designs that are being measured.
        """
        left, pending = self._rows(sorted(among)), self._rows(sorted(k for k in under_way if k in self._row))
        chosen: list[str] = []
        with one_thread():
            while len(chosen) < count and len(left):
                excess, deviations = self._expected(self._coded[left], self._coded[pending])
                front = np.concatenate((self._measured, self.means[pending[self.probability[pending] >= 0.5]]))
                rng = np.random.default_rng((len(self._known), len(pending)))
                likely = np.ones(len(left), bool)
                gains = log_gain(self._prior[left] + excess, deviations, front, likely, rng)
                gains = gains + np.log(self.probability[left])
                row = left[int(np.round(gains, 7).argmax())]  # so that ties do not depend on rounding
                chosen.append(self.keys[row])
                left, pending = left[left != row], np.append(pending, row)
        return chosen


class _Scale(Struct, frozen=True):
    """Scale of losses: logarithmic if all have one sign, else linear in units of a power of two."""

    sign: int
    magnitude: int

    @classmethod
    def of(cls, losses: Floats) -> _Scale:
        return cls(1 if (losses > 0).all() else -1 if (losses < 0).all() else 0, magnitude(losses))

    def to(self, losses: Floats) -> Floats:
        return self.sign * np.log(self.sign * losses) if self.sign else np.ldexp(losses, -self.magnitude)


class _Process:
    """A Gaussian process around a mean.

    Args:
        coded: features of the observed designs, (designs, features).
        categorical: mask of features.
        values: observed values, (designs,).
        fewest: the least number of designs from which others are predicted.
    """

    def __init__(self, coded: Floats, categorical: Booleans, values: Floats, mean: float, fewest: int) -> None:
        self._mean = mean
        self._deviation = float(np.sqrt(((values - mean) ** 2).mean())) if len(values) else 0.0
        self._model: Surrogate | None = None
        if len(values) >= fewest and self._deviation > EXACT and coded.shape[1]:
            values = (values - mean) / self._deviation
            alike = np.ptp(values) <= EXACT  # nothing can be fitted to failures alone
            scales = prior_scales(coded.shape[1]) if alike else fitted_scales(coded, values, categorical)
            self._model = Surrogate(coded, values, categorical, scales, centred=True)

    def predict(self, coded: Floats, pending: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of designs, if pending ones turn out as expected."""
        count = len(coded)
        if self._model is None:
            return np.full(count, self._mean), np.zeros(count)
        found = self._model.posterior(np.vstack((coded, pending)))
        for position in range(count, count + len(pending)):
            found.believe(position)
        return self._mean + self._deviation * found.mean[:count], self._deviation * found.deviation[:count]


POOL = 1000  # candidates for the next promotion, the best by the rung below: the choice takes at most 0.1 s


@dataclass(frozen=True)
class Rung:
    """A more expensive evaluator, and the number of designs that it measures.

    The first are the best by the rung below. Later ones have the largest expected gain, by a model of failures and of
    differences between the two rungs.

        Study(..., rungs=[Rung(CoSimulation, best=0.02, at_most=50)])

    Args:
        evaluator: an evaluator, its class, or a function that makes it; or one of a design.
        front: promote at least as many designs as the Pareto front of the rung below has.
        best: promote this share of the rung below (its feasible designs), those of `front` included.
        at_most: how many designs to promote in all.
        pruner: an Optuna pruner that may stop promotions; each design is a trial that reports its first objective at
            every rung.
    """

    evaluator: Evaluator | Callable[[], Evaluator] | Callable[[Design], Any]
    front: bool = True
    best: float = 0.05
    at_most: int = 100
    pruner: optuna.pruners.BasePruner | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.best <= 1:
            raise StudyError(f"Rung(best={self.best}): expected a share from 0 to 1", hint="best=0.05 promotes 5 %")
        if self.at_most < 1:
            raise StudyError(f"Rung(at_most={self.at_most}) promotes nothing", hint="leave the rung out instead")


def as_rung(given: Rung | Evaluator | Callable[[], Evaluator] | Callable[[Design], Any]) -> Rung:
    """Return a rung as it is, or one for an evaluator, which promotes `top` designs if it is set."""
    if isinstance(given, Rung):
        return given
    top = getattr(given, "top", None)
    return Rung(given) if top is None else Rung(given, best=1.0, at_most=top)


def promoted(rung: Rung, values: Mapping[str, Values], signs: tuple[float, ...]) -> list[str]:
    """The designs to promote before anything is measured, the most promising first.

    Args:
        values: objective values of the feasible designs of the rung below, by key.
        signs: factors that turn values into losses.
    """
    keys, front = _in_layers(values, signs, min(rung.at_most, math.ceil(rung.best * len(values))))
    return keys[: _allowed(rung, len(values), front)]


def _allowed(rung: Rung, count: int, front: int) -> int:
    """Return how many designs may be promoted in all.

    Args:
        count: number of feasible designs.
        front: number of designs on the front.
    """
    return min(rung.at_most, max(math.ceil(rung.best * count), front if rung.front else 0))


def _in_layers(values: Mapping[str, Values], signs: tuple[float, ...], least: int) -> tuple[list[str], int]:
    """Return at least `least` designs in the order of layers, and the size of the first layer.

    Layers are the front, the front of the rest, and so on. Within a layer, designs are ordered by their distance from
    the ideal point, with each objective scaled to 0 to 1.
    """
    keys, chosen, front = list(values), np.zeros(0, np.int64), 0
    losses = np.array([values[key] for key in keys], float).reshape(len(keys), len(signs)) * np.array(signs)
    left = np.arange(len(keys))
    while len(left) and (not front or len(chosen) < least):
        layer = left[pareto_positions(losses[left])]
        front = front or len(layer)
        low, high = losses.min(0), losses.max(0)
        scaled = (losses[layer] - low) / np.where(high > low, high - low, 1.0)
        chosen = np.concatenate([chosen, layer[np.argsort((scaled**2).sum(1), kind="stable")]])
        left = np.setdiff1d(left, layer)
    return [keys[position] for position in chosen.tolist()], front


class PrunerGate:
    """Promotion by an Optuna pruner, with one trial per design that ends at the last rung.

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
        """Return the designs that the pruner does not stop.

        Args:
            losses: returns the losses of all designs that a rung has measured.
            below: the rung that the designs would leave.
        """
        for number in (*range(below + 1), self._last):
            for key, loss in losses(number).items():
                if (number, key) in self._reported:
                    continue
                self._reported.add((number, key))
                if key not in self._trials:
                    self._trials[key] = self._study.ask()
                if number < self._last:
                    self._trials[key].report(loss, number)
                else:
                    self._study.tell(self._trials[key], loss)
        return [key for key in keys if not self._trials[key].should_prune()]


class Promotion:
    """Choice of the designs to promote, and when.

    Args:
        rungs: rungs above the first; None for one that cannot be used.
        ranges: ranges of the genes.
        learn: adds a design's genes to `ranges`; needed when the space is listed and no genes are drawn.
    """

    def __init__(
        self,
        rungs: Sequence[Rung | None],
        tally: Tally,
        signs: Sequence[float],
        ranges: Mapping[str, Gene],
        learn: Callable[[Genes], Genes] = dict,
    ) -> None:
        self._rungs = rungs
        self._tally = tally
        self._signs = tuple(signs)
        self._ranges, self._learn = ranges, learn
        self._gates = {
            n: PrunerGate(rung.pruner, len(rungs)) for n, rung in enumerate(rungs, 1) if rung and rung.pruner
        }
        self._sent: dict[int, set[str]] = {n: set(tally.rungs.get(n, ())) for n in range(1, len(rungs) + 1)}
        self._genes: dict[str, Genes] = {}

    @property
    def usable(self) -> list[int]:
        """Rungs above the first that can be used."""
        return [n for n, rung in enumerate(self._rungs, 1) if rung is not None]

    def next(self, number: int, room: int, *, over: bool) -> list[Record]:
        """Up to `room` designs to promote to a rung.

        Args:
            over: whether the rung below has finished. Until then at most half of the allowed designs are promoted,
                because early fronts are poor.
        """
        rung = self._rungs[number - 1]
        sent = self._sent[number]
        if rung is None or room <= 0:
            return []
        below = max((n for n in (0, *self.usable) if n < number), default=0)
        values, measured = self._tally.feasible(below), self._tally.rungs.get(number, {})
        if over:
            in_order, front = _in_layers(values, self._signs, POOL + len(sent))
            room = min(room, _allowed(rung, len(values), front) - len(sent))
        else:
            settled = rung.front and number == 1 and self._tally.front.reference is not None
            most = min(rung.at_most - rung.at_most // 2, _allowed(rung, len(values), len(self._tally.front.keys)))
            room = min(room, most - len(sent)) if settled else 0
            in_order = _in_layers(values, self._signs, POOL + len(sent))[0] if room > 0 else []
        if room <= 0:
            return []
        keys = [key for key in in_order if key not in sent]
        if number in self._gates:
            keys = self._gates[number].passed(keys, self._losses, below)
        if len(measured) >= FEWEST or None in measured.values():
            keys = self._model(values, in_order, measured).best(room, keys, sent - measured.keys())
        chosen = keys[:room]
        sent.update(chosen)
        return [self._tally.records.by_key(key) for key in chosen]

    def _model(
        self,
        values: Mapping[str, Values],
        pool: Sequence[str],
        measured: Mapping[str, Values | None],
    ) -> MultiFidelityModel:
        below = {key: values[key] for key in {*pool, *(measured.keys() & values.keys())}}
        for key in below.keys() - self._genes.keys():
            self._genes[key] = self._learn(self._tally.records.by_key(key).genes)
        losses = {key: self._as_losses(of) for key, of in below.items()}
        found = {key: values and self._as_losses(values) for key, values in measured.items()}
        return MultiFidelityModel(self._genes, self._ranges, losses, found)

    def _as_losses(self, values: Values) -> Losses:
        return tuple(sign * value for sign, value in zip(self._signs, values, strict=True))

    def _losses(self, number: int) -> dict[str, float]:
        """The first objective's losses of the designs that a rung found feasible."""
        return {key: self._signs[0] * values[0] for key, values in self._tally.feasible(number).items()}
