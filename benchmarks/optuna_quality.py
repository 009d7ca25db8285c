"""How good is the sampler in plain Optuna? Against Optuna's NSGA-II and random search, on problems with known optima.

    python -m benchmarks.optuna_quality [--trials 300] [--seeds 3]

Of problems with one objective the best value is shown (less is better), of others the hypervolume of the front as a
share of the box up to a reference point (more is better): mean and worst of the seeds. Five problems are from the
literature (sphere, Rosenbrock; ZDT1: E. Zitzler et al., Evolutionary Computation 8(2), 2000; DTLZ2: K. Deb et al., CEC
2002; BNH: T. Binh and U. Korn, 1997, with two constraints); the last has parameters of all kinds.
"""

import argparse
import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import optuna

from allo_dse import EvolutionSampler
from allo_dse.tune.search.pareto_front import hypervolume

SAMPLERS = {
    "evolution": EvolutionSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "random": optuna.samplers.RandomSampler,
}


def reals(trial: Any, size: int, low: int, high: int) -> Any:
    return [trial.suggest_float(f"x{n}", low, high) for n in range(size)]


def sphere(trial: Any) -> Any:
    return (sum(x * x for x in reals(trial, 8, -5, 5)),)


def rosenbrock(trial: Any) -> Any:
    return (sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(reals(trial, 5, -2, 2))),)


def zdt1(trial: Any) -> Any:
    first, *rest = reals(trial, 10, 0, 1)
    g = 1 + 9 * sum(rest) / len(rest)
    return first, g * (1 - math.sqrt(first / g))


def dtlz2(trial: Any) -> Any:
    x = reals(trial, 8, 0, 1)
    g = 1 + sum((v - 0.5) ** 2 for v in x[2:])
    a, b = (v * math.pi / 2 for v in x[:2])
    return g * math.cos(a) * math.cos(b), g * math.cos(a) * math.sin(b), g * math.sin(a)


def bnh(trial: Any) -> Any:
    x, y = trial.suggest_float("x", 0, 5), trial.suggest_float("y", 0, 3)
    trial.set_constraint("inside", (x - 5) ** 2 + y * y - 25)
    trial.set_constraint("outside", 7.7 - (x - 8) ** 2 - (y + 3) ** 2)
    return 4 * x * x + 4 * y * y, (x - 5) ** 2 + (y - 5) ** 2


def mixed(trial: Any) -> tuple[Any]:
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    loss = math.log(trial.suggest_int("n", 1, 1000, log=True) / 37) ** 2
    loss += ((trial.suggest_int("m", 0, 500) - 123) / 50) ** 2
    if kind == "b":
        loss += (math.log10(trial.suggest_float("rate", 1e-6, 1, log=True)) + 3) ** 2
    else:
        loss += 1 + trial.suggest_int("z", 0, 9)
    return (loss + (0 if kind else 2),)


REFERENCES = {sphere: None, rosenbrock: None, mixed: None, zdt1: (2, 6), dtlz2: (2, 2, 2), bnh: (140, 50)}


def reached(problem: Callable[..., Any], sampler: Any, trials: Any) -> Any:
    reference = REFERENCES[problem]
    study = optuna.create_study(directions=["minimize"] * len(reference or "1"), sampler=sampler)
    study.optimize(problem, n_trials=trials)
    if reference is None:
        return study.best_value
    front = np.array([trial.values for trial in study.best_trials]) / np.array(reference)
    return hypervolume(front[(front < 1).all(1)], np.ones(len(reference)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"after {options.trials} trials, mean (worst) of {options.seeds} seeds")
    print(f"{'problem':12}{'better':>7}" + "".join(f"{name:>20}" for name in SAMPLERS))
    for problem, reference in REFERENCES.items():
        cells = ""
        for make in SAMPLERS.values():
            found = [reached(problem, make(seed=seed), options.trials) for seed in range(options.seeds)]
            worst = max(found) if reference is None else min(found)
            cells += f"{np.mean(found):>10.3f} ({worst:>6.3f})"
        print(f"{problem.__name__:12}{'less' if reference is None else 'more':>7}{cells}", flush=True)


if __name__ == "__main__":
    main()
