"""Robust least squares on logarithms: outliers count little, and undetermined parameters stay as they are.

Residuals are weighted by Cauchy's function at 95 % efficiency, and their scale is the median absolute residual [Huber
and Ronchetti, Robust Statistics, 2009]. Of parameters with similar effects, the weakest are left alone: while the
weakest singular direction of the Jacobian is undetermined, the parameter with the largest part in it is removed
(subset selection by singular vectors [Golub and Van Loan, Matrix Computations, 5.5.7]).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.tensors import IntArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FOLDS = 8
"""Folds of the cross-validation."""
FEWEST_TO_JUDGE = 5
LEAST_PERCENT = 0.1
"""The best accuracy that is claimed, in percent, and the fewest measurements to claim one."""
CAUCHY = 2.385  # scales; 95 % efficient where errors are normal
MAD = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
LEAST_SCALE = 0.002
SELECTION_SCALE = 0.05  # assumed noise while the fit is still far off
UNDETERMINED = 0.3  # standard deviation of a logarithm: known to a third only
NO_EFFECT = 0.002  # slope of log time by log parameter: doubling it changes no time by 0.2 %
PARTNER = 0.2
STEP = 0.04
LONGEST_STEP = 0.7  # a factor of two
ROUNDS = 10
TRIES = 20  # steps of one round, with a constant scale
TRUST = 1.0  # standard deviation of a logarithm before anything is measured: a factor of e
PROBE_ROUNDS = 2
SMALL_STEP = 2e-3
BENT = 0.7  # share of the scale below which a fit without one measurement is another minimum
FEWEST_PER_PARAMETER = 2
FEW = 8
PROBES = tuple(float(np.log(factor)) for factor in (0.2, 0.35, 0.6, 0.8, 1.25, 1.7, 3.0, 5.0))
CANDIDATES = 3
LEFT = 0.6  # share of the held-out error that may be left with another coordinate


_End = tuple[Vector, Vector, Matrix]
"""Coordinates, residuals and slopes at the end of a descent."""


class Problem(Frozen):
    """A fitting problem.

    Attributes:
        residuals_at: returns the residuals at given coordinates.
        low, high: limits of the coordinates.
        whole: coordinates of integers: a choice of few values needs fewer measurements than a number.
    """

    residuals_at: Callable[[Vector], Vector]
    low: Vector
    high: Vector
    whole: frozenset[int] = frozenset()

    def clip(self, at: Vector) -> Vector:
        result: Vector = np.clip(at, self.low, self.high)
        return result

    def slopes(self, at: Vector, residuals: Vector, of: Iterable[int]) -> Matrix:
        """Return the slopes of residuals by some coordinates, from steps within the limits; zero for the others."""
        result = np.zeros((len(residuals), len(at)))
        for i in of:
            step = STEP if at[i] + STEP <= self.high[i] else -STEP
            moved = at.copy()
            moved[i] += step
            result[:, i] = (self.residuals_at(moved) - residuals) / step
        return result

    def remembering(self) -> Problem:
        """Return the same problem with cached residuals."""
        known: dict[bytes, Vector] = {}

        def residuals_at(at: Vector) -> Vector:
            key = at.tobytes()
            if key not in known:
                known[key] = self.residuals_at(at)
            return known[key]

        return replace(self, residuals_at=residuals_at)


class Selection(Frozen):
    """The parameters that the data determines.

    Attributes:
        free: the parameters that are fitted.
        alike: per undetermined parameter, those that it cannot be told from; empty if it has no effect.
    """

    free: list[int]
    alike: dict[int, list[int]]


class Fit(Frozen):
    """The end of a fit: problem, coordinates, residuals, slopes, and the selection of free coordinates."""

    problem: Problem
    at: Vector
    residuals: Vector
    jacobian: Matrix
    selection: Selection

    @staticmethod
    def unchanged(problem: Problem, start: Vector, residuals: Vector) -> Fit:
        """Return a fit of no coordinate."""
        return Fit(problem, start, residuals, np.zeros((len(residuals), len(start))), Selection([], {}))

    @property
    def scale(self) -> float:
        """Standard deviation of the residuals, without outliers."""
        return scale_of(self.residuals)

    @property
    def deviations(self) -> Vector:
        """Standard deviations of the free coordinates."""
        free = self.jacobian[:, self.selection.free]
        if not free.shape[1]:
            return np.zeros(0)
        # A robust fit passes through as many measurements as it has parameters: their residuals tell nothing.
        telling = np.sort(np.abs(self.residuals))[free.shape[1] :]
        scale = scale_of(telling) if len(telling) else self.scale
        weights = weights_of(self.residuals, scale)
        covariance = np.linalg.pinv(free.T @ (weights[:, None] * free))
        # Bessel's correction: each fitted degree of freedom makes residuals smaller than errors.
        excess = len(self.residuals) / max(1, len(self.residuals) - free.shape[1])
        result: Vector = scale * np.sqrt(np.diag(covariance) * excess)
        return result

    def error(self, folds: IntArray) -> float:
        """Return the error of held-out measurements: the median and the 90th percentile together, as logarithms."""
        return error_of(self.held_out(folds))

    def held_out(self, folds: IntArray) -> Vector:
        """Return the residuals of each fold by a fit to the others, linearized in the free coordinates.

        Those stay within their limits, as in the fit: beyond them, a line predicts what no device can do.
        """
        free = self.jacobian[:, self.selection.free]
        result = self.residuals.copy()
        for fold in np.unique(folds) if free.size else ():
            out = folds == fold
            moved = self.at.copy()
            moved[self.selection.free] += _linear(free[~out], self.residuals[~out])
            result[out] += self.jacobian[out] @ (self.problem.clip(moved) - self.at)
        return result


def scale_of(residuals: Vector) -> float:
    """Return the standard deviation of residuals as if they were normal; outliers do not count."""
    return max(LEAST_SCALE, MAD * float(np.median(np.abs(residuals))))


def error_of(residuals: Vector) -> float:
    """Return the sum of median and 90th percentile: the median alone hides improvements elsewhere."""
    return float(np.quantile(np.abs(residuals), (0.5, 0.9)).sum())


def error_quantiles(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """Median and 90th percentile of the absolute relative error."""
    absolute = np.abs(np.array(predicted) / np.array(measured) - 1)
    return float(np.median(absolute)), float(np.quantile(absolute, 0.9))


def weights_of(residuals: Vector, scale: float) -> Vector:
    result: Vector = 1 / (1 + (residuals / (CAUCHY * scale)) ** 2)
    return result


def loss(residuals: Vector, scale: float) -> float:
    """Return the robust loss that the fit minimizes."""
    return float(np.log1p((residuals / (CAUCHY * scale)) ** 2).sum())


def _linear(jacobian: Matrix, residuals: Vector) -> Vector:
    """Return the change that minimizes residuals that are linear in it."""
    return _minimum(lambda change: residuals + jacobian @ change, lambda _: jacobian, np.zeros(jacobian.shape[1]))


def _minimum(
    residuals_at: Callable[[Vector], Vector],
    slopes_at: Callable[[Vector], Matrix],
    start: Vector,
    bounds: tuple[Vector | float, Vector | float] = (-np.inf, np.inf),
    trust: float = np.inf,
    rounds: int = ROUNDS,
) -> Vector:
    """Return the minimum of the robust loss, by SciPy's trust region, for the scale of the residuals there.

    Args:
        trust: standard deviation of coordinates around the start.
    """
    from scipy.optimize import least_squares  # takes a second to import: only for runs that fit

    def cauchy(squares: Vector) -> Matrix:
        # SciPy asks for the loss of squares and two derivatives. Rows beyond the measurements keep their squares.
        result = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        weight = 1 / (1 + squares[: len(now)])
        result[:, : len(now)] = -np.log(weight), weight, -(weight**2)
        return result

    at = start
    for _ in range(rounds if len(start) else 0):
        now = residuals_at(at)
        unit = CAUCHY * scale_of(now)
        # Ridge regression: a row per coordinate pulls it to its start. Otherwise noise would set the length of steps
        # in directions that the data does not determine.
        prior = min(1.0, CAUCHY * SELECTION_SCALE / unit) / (CAUCHY * trust)
        known: tuple[Vector, Vector, Matrix] | None = None

        def rows_at(z: Vector, unit: float = unit, prior: float = prior) -> Vector:
            return np.concatenate([residuals_at(z) / unit, prior * (z - start)])

        def jacobian_at(z: Vector, unit: float = unit, prior: float = prior) -> Matrix:
            # Slopes cost one evaluation of the residuals per coordinate. Within a round, update them from the steps
            # instead [Broyden, A class of methods, 1965].
            nonlocal known
            rows = residuals_at(z)
            if known is None:
                slopes = slopes_at(z)
            else:
                went = z - known[0]
                slopes = known[2] + np.outer(rows - known[1] - known[2] @ went, went) / (went @ went)
            known = z.copy(), rows, slopes
            return np.vstack([slopes / unit, prior * np.eye(len(z))])

        found = least_squares(
            rows_at, at, jacobian_at, bounds, loss=cauchy, xtol=SMALL_STEP / 4, ftol=1e-3, max_nfev=TRIES
        ).x
        is_small = np.abs(found - at).max() < SMALL_STEP
        at = found
        if is_small:
            break
    return at


def select(jacobian: Matrix, residuals: Vector, scale: float, allowed: Sequence[int]) -> Selection:
    """Return the selection of allowed parameters that these measurements determine."""
    reach = np.abs(jacobian).max(axis=0)
    free = [i for i in allowed if reach[i] >= NO_EFFECT]
    alike: dict[int, list[int]] = {i: [] for i in allowed if i not in free}
    root = np.sqrt(weights_of(residuals, scale))
    most = max(1, len(residuals) // FEWEST_PER_PARAMETER)
    while free:
        _, singular, directions = np.linalg.svd(root[:, None] * jacobian[:, free], full_matrices=True)
        weakest = singular[-1] if len(singular) == len(free) else 0.0
        if len(free) <= most and weakest * UNDETERMINED >= scale:
            break
        # Residuals change least along the right singular vector of the smallest singular value. Its largest entry is
        # the parameter that others can replace; these have large entries too.
        direction = np.abs(directions[-1])
        position = int(direction.argmax())
        alike[free[position]] = [i for i, part in zip(free, direction, strict=True) if part > PARTNER * direction.max()]
        alike[free[position]].remove(free[position])
        del free[position]
    return Selection(free, alike)


def fit(problem: Problem, start: Vector) -> Fit:
    """Fit the coordinates to small residuals, in two steps.

    The first fits all of them, held loosely to their start. The second fits those that are determined, with the others
    at their start.
    """
    problem = problem.remembering()
    residuals = problem.residuals_at(start)
    jacobian = problem.slopes(start, residuals, range(len(start)))
    effective = [i for i in range(len(start)) if np.abs(jacobian[:, i]).max() >= NO_EFFECT]
    at, residuals = _descend(problem, start, effective, TRUST)
    allowed, alike = effective, {i: list[int]() for i in range(len(start)) if i not in effective}
    while True:
        jacobian = problem.slopes(at, residuals, allowed)
        chosen = select(jacobian, residuals, scale_of(residuals), allowed)
        alike.update(chosen.alike)
        if chosen.free == allowed and all(at[i] == start[i] for i in alike):
            at, residuals, jacobian = _unbent(problem, (at, residuals, jacobian), allowed)
            return Fit(problem, at, residuals, jacobian, Selection(allowed, alike))
        kept = start.copy()
        kept[chosen.free] = at[chosen.free]
        allowed = chosen.free
        at, residuals = _descend(problem, kept, allowed, np.inf)


def grow(problem: Problem, start: Vector, folds: IntArray) -> Fit:
    """Fit one coordinate after another, as long as held-out measurements are predicted better.

    Coordinates begin from several values: where another part of the model limits all times, they show no slope.
    """
    residuals = problem.residuals_at(start)
    found = Fit.unchanged(problem, start, residuals)
    most = len(residuals) // FEWEST_PER_PARAMETER if len(residuals) >= FEW else 1
    while found.error(folds) > 2 * LEAST_SCALE:
        free = set(found.selection.free)
        closed = free if len(free - problem.whole) < most else set(range(len(start))) - (problem.whole - free)
        ends = [_with_one_more(problem, found, i, at) for i, at in _probed(problem, found, closed)]
        # The best of many coordinates helps a little by chance already.
        better = [end for end in ends if end.error(folds) < LEFT * found.error(folds)]
        if not better:
            break
        found = min(better, key=lambda end: end.error(folds))
    return found


def _probed(problem: Problem, found: Fit, closed: set[int]) -> list[tuple[int, Vector]]:
    """Return the coordinates whose changes alone explain most, but for closed ones, each with where that is."""
    best = []
    for i in set(moving(problem, found.at)).difference(closed):
        values = [problem.clip(found.at + step * np.eye(len(found.at))[i]) for step in PROBES]
        losses = [loss(problem.residuals_at(at), SELECTION_SCALE) for at in values]
        # The smallest change of those that help as much: beyond it, something else limits the times.
        near = [k for k, own in enumerate(losses) if own <= min(losses) + NO_EFFECT]
        best.append((min(losses), i, values[min(near, key=lambda k: abs(PROBES[k]))]))
    return [(i, at) for _, i, at in sorted(best, key=lambda one: one[:2])[:CANDIDATES]]


def _with_one_more(problem: Problem, found: Fit, i: int, at: Vector) -> Fit:
    """Return the fit of the free coordinates and of another one, from `at`."""
    free = sorted([*found.selection.free, i])
    at, residuals = _descend(problem, at, free, TRUST, PROBE_ROUNDS)
    return Fit(problem, at, residuals, problem.slopes(at, residuals, free), Selection(free, {}))


def moving(problem: Problem, at: Vector) -> list[int]:
    """Return the coordinates that move residuals when they change by a factor of five."""
    residuals = problem.residuals_at(at)
    steps = [[at + step * row for step in (PROBES[0], PROBES[-1])] for row in np.eye(len(at))]
    shifts = [[np.abs(problem.residuals_at(problem.clip(to)) - residuals).max() for to in own] for own in steps]
    return [i for i, own in enumerate(shifts) if max(own) > STEP]


def _unbent(problem: Problem, ended: _End, free: list[int]) -> _End:
    """Return the end of a descent, or a better one reached without a single measurement that bends it.

    A measurement that alone determines a coordinate can pull it far away. Measurements near it then look like
    outliers: a local minimum. The fit without that measurement has a far smaller scale [Rousseeuw, Least median of
    squares, 1984].
    """
    at, residuals, jacobian = ended
    scale = scale_of(residuals)
    if not free or scale <= LEAST_SCALE:
        return ended
    changes = [_linear(np.delete(jacobian[:, free], i, 0), np.delete(residuals, i)) for i in range(len(residuals))]
    scales = [scale_of(residuals + jacobian[:, free] @ change) for change in changes]
    least = int(np.argmin(scales))
    if scales[least] > BENT * scale:
        return ended
    moved = at.copy()
    longest = float(np.abs(changes[least]).max())
    moved[free] += changes[least] * min(1.0, LONGEST_STEP / max(longest, 1e-9))
    moved, then = _descend(problem, problem.clip(moved), free, np.inf)
    return (moved, then, problem.slopes(moved, then, free)) if scale_of(then) < BENT * scale else ended


def _descend(
    problem: Problem, at: Vector, free: Sequence[int], trust: float, rounds: int = ROUNDS
) -> tuple[Vector, Vector]:
    """Return the minimum of the robust loss over the free coordinates, and the residuals there.

    Args:
        trust: standard deviation of coordinates around their current values.
    """
    free, at = list(free), problem.clip(at)

    def whole(z: Vector) -> Vector:
        moved = at.copy()
        moved[free] = z
        return problem.clip(moved)

    def slopes_at(z: Vector) -> Matrix:
        return problem.slopes(whole(z), problem.residuals_at(whole(z)), free)[:, free]

    bounds = (problem.low[free], problem.high[free])
    ended = whole(_minimum(lambda z: problem.residuals_at(whole(z)), slopes_at, at[free], bounds, trust, rounds))
    return ended, problem.residuals_at(ended)
