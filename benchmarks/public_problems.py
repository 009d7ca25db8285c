"""Public test problems in Optuna's form, and what samplers reach on them.

Mixed ZDT1 and DTLZ2 have reals, integers and categories (E. Zitzler, K. Deb and L. Thiele, Evolutionary Computation
8(2), 2000; K. Deb et al., CEC 2002); OSY has six constraints (A. Osyczka and S. Kundu, Structural Optimization 10,
1995), MW7 two that leave a narrow band (Z. Ma and Y. Wang, IEEE Trans. Evol. Comput. 23(6), 2019), BNH is easy (T.
Binh and U. Korn, 1997). In `hidden` one in twenty-five designs works and the others fail without a word; `kinds` has
parameters of all kinds, some of which depend on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import optuna

from allo_dse import EvolutionSampler
from allo_dse.tune.search.pareto_front import hypervolume


def _reals(trial: Any, count: int, low: float = 0, high: float = 1) -> list[float]:
    return [trial.suggest_float(f"x{n}", low, high) for n in range(count)]


def _mixed(trial: Any, integers: int, categories: int) -> list[float]:
    """Values from 0 to 1: integers in steps of a twentieth, and categories without order."""
    found = [trial.suggest_int(f"i{n}", 0, 20) / 20 for n in range(integers)]
    return found + [float(trial.suggest_categorical(f"c{n}", ["d", "a", "c", "b"]) in "cd") for n in range(categories)]


def rosenbrock(trial: Any) -> tuple[float, ...]:
    return (sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(_reals(trial, 5, -2, 2))),)


def kinds(trial: Any) -> tuple[float, ...]:
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    loss = (
        math.log(trial.suggest_int("n", 1, 1000, log=True) / 37) ** 2
        + ((trial.suggest_int("m", 0, 500) - 123) / 50) ** 2
    )
    if kind == "b":
        loss += (math.log10(trial.suggest_float("rate", 1e-6, 1, log=True)) + 3) ** 2
    else:
        loss += 1 + trial.suggest_int("z", 0, 9)
    return (loss + (0 if kind else 2),)


def hidden(trial: Any) -> tuple[float, ...]:
    a, b, c, d = (trial.suggest_int(name, 0, 15) for name in "abcd")
    kind = trial.suggest_categorical("kind", ["x", "y", "z"])
    if a + b < 22 or c < 8 or (kind == "y" and d < 6):
        raise ArithmeticError
    return (1 + (a - 13) ** 2 / 8 + (d - 5) ** 2 / 4 + abs(c - 11) / 2 + "zxy".index(kind),)


def zdt1(trial: Any) -> tuple[float, ...]:
    (first,), rest = _reals(trial, 1), _mixed(trial, 4, 3)
    g = 1 + 9 * sum(rest) / len(rest)
    return first, g * (1 - math.sqrt(first / g))


def dtlz2(trial: Any) -> tuple[float, ...]:
    a, b = (v * math.pi / 2 for v in _reals(trial, 2))
    g = 1 + sum((v - 0.5) ** 2 for v in _mixed(trial, 4, 2))
    return g * math.cos(a) * math.cos(b), g * math.cos(a) * math.sin(b), g * math.sin(a)


def bnh(trial: Any) -> tuple[float, ...]:
    x, y = trial.suggest_float("x", 0, 5), trial.suggest_float("y", 0, 3)
    trial.set_constraint("inside", (x - 5) ** 2 + y * y - 25)
    trial.set_constraint("outside", 7.7 - (x - 8) ** 2 - (y + 3) ** 2)
    return 4 * x * x + 4 * y * y, (x - 5) ** 2 + (y - 5) ** 2


def osy(trial: Any) -> tuple[float, ...]:
    ranges = [(0, 10), (0, 10), (1, 5), (0, 6), (1, 5), (0, 10)]
    a, b, c, d, e, f = (trial.suggest_float(f"x{n}", *of) for n, of in enumerate(ranges))
    amounts = a + b - 2, 6 - a - b, 2 - b + a, 2 - a + 3 * b, 4 - (c - 3) ** 2 - d, (e - 3) ** 2 + f - 4
    for n, amount in enumerate(amounts):
        trial.set_constraint(f"g{n}", -amount)
    first = 25 * (a - 2) ** 2 + (b - 2) ** 2 + (c - 1) ** 2 + (d - 4) ** 2 + (e - 1) ** 2
    return -first, sum(v * v for v in (a, b, c, d, e, f))


def mw7(trial: Any) -> tuple[float, ...]:
    x = _reals(trial, 6)
    g = 1 + sum(2 * (b + (a - 0.5) ** 2 - 1) ** 2 for a, b in pairwise(x))
    first, second = g * x[0], g * math.sqrt(max(0.0, 1 - x[0] ** 2))
    angle, square = math.atan2(second, first), first**2 + second**2
    trial.set_constraint("outer", square - (1.2 + abs(0.4 * math.sin(4 * angle) ** 16)) ** 2)
    trial.set_constraint("inner", (1.15 - abs(0.2 * math.sin(4 * angle) ** 8)) ** 2 - square)
    return first, second


class Problem(NamedTuple):
    """A problem, with the box between its ideal and its reference point; none with one objective."""

    objective: Callable[[Any], tuple[float, ...]]
    ideal: Sequence[float] = ()
    reference: Sequence[float] = ()


PROBLEMS: Mapping[str, Problem] = {
    "rosenbrock": Problem(rosenbrock),
    "kinds": Problem(kinds),
    "hidden": Problem(hidden),
    "zdt1": Problem(zdt1, (0, 0), (1.1, 6)),
    "dtlz2": Problem(dtlz2, (0, 0, 0), (2, 2, 2)),
    "bnh": Problem(bnh, (0, 0), (140, 50)),
    "osy": Problem(osy, (-274, 4), (-42, 76)),
    "mw7": Problem(mw7, (0, 0), (1.2, 1.2)),
}
SAMPLERS: Mapping[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "evolution": EvolutionSampler,
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def reached(problem: Problem, sampler: optuna.samplers.BaseSampler, marks: Sequence[int]) -> list[float]:
    """Return the best value, or the share of the box that the front dominates, after each number of trials."""
    count = len(problem.reference) or 1
    study = optuna.create_study(directions=["minimize"] * count, sampler=sampler)
    found: list[float] = []
    for mark in marks:
        study.optimize(problem.objective, n_trials=mark - len(study.trials), catch=ArithmeticError)
        trials = [t.values for t in study.trials if t.values and all(v <= 0 for v in t.constraints.values())]
        if count == 1:
            found.append(min((values[0] for values in trials), default=math.inf))
        else:
            ideal = np.array(problem.ideal)
            scaled = (np.array(trials).reshape(-1, count) - ideal) / (np.array(problem.reference) - ideal)
            found.append(hypervolume(scaled[(scaled < 1).all(1)], np.ones(count)))
    return found
