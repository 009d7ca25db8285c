"""How good is the sampler where evaluations are few? On synthetic spaces of tuned kernels, in plain Optuna.

    python -m benchmarks.kernel_search [--seeds 20] [--samplers model,evolution,random] [--families stencil_in_time,...]

With one objective: 0 is what random search has after as many evaluations on average, 1 the optimum (the score of Kernel
Tuner's methodology: F.-J. Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning",
2024). With two: hypervolume of the logarithms below the three quarters of all designs, as a share of that of the true
front. Median and quartiles over seeds, each a space of its own. Designs that a stated restriction forbids are pruned
and do not count; those that fail count. `model` is the sampler as it is, `evolution` the same without a model.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import optuna

from allo_dse import EvolutionSampler
from allo_dse.tune.search.pareto_front import hypervolume
from benchmarks.kernel_spaces import SEEN, UNSEEN, Floats, KernelSpace

MARKS = (50, 100, 200)
MOST_ASKED = 50  # trials for each that counts
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "model": lambda seed: EvolutionSampler(seed),
    "evolution": lambda seed: EvolutionSampler(seed, modelled=0),
    "random": lambda seed: optuna.samplers.RandomSampler(seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
}


def searched(space: KernelSpace, sampler: optuna.samplers.BaseSampler) -> Floats:
    """Losses in the order of evaluation, (evaluations, objectives)."""
    study = optuna.create_study(directions=["minimize"] * space.losses.shape[1], sampler=sampler)
    found: list[Floats] = []
    for _ in range(MOST_ASKED * MARKS[-1]):
        if len(found) == MARKS[-1]:
            break
        trial = study.ask()
        row = space.find([of.index(trial.suggest_categorical(name, of)) for name, of in space.values.items()])
        if row is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        found.append(space.losses[row])
        if np.isfinite(found[-1]).all():
            study.tell(trial, found[-1].tolist())
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return np.array(found)


def scores(space: KernelSpace, found: Floats) -> list[float]:
    """At each of the marks."""
    known = space.losses[np.isfinite(space.losses).all(1)]
    if space.losses.shape[1] == 1:
        best, reached = float(known.min()), np.minimum.accumulate(found[:, 0])
        expected = [space.expected_best(mark) for mark in MARKS]
        return [(e - reached[min(m, len(found)) - 1]) / (e - best) for e, m in zip(expected, MARKS, strict=True)]
    low, high = np.log(known).min(0), np.quantile(np.log(known), 0.75, 0)

    def volume(losses: Floats) -> float:
        return hypervolume((np.log(losses[np.isfinite(losses).all(1)]) - low) / (high - low), np.ones(2))

    return [volume(found[:mark]) / volume(known) for mark in MARKS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--samplers", default="model,evolution,random")
    parser.add_argument("--families", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"after {MARKS} evaluations, median (quartiles) of {options.seeds} spaces")
    for title, families in (("seen", SEEN), ("unseen", UNSEEN)):
        for family in families:
            if options.families and family.__name__ not in options.families.split(","):
                continue
            table: dict[str, list[list[float]]] = {name: [] for name in options.samplers.split(",")}
            seconds = dict.fromkeys(table, 0.0)
            for seed in range(options.seeds):
                with np.errstate(all="ignore"):
                    space = family(seed)
                for name, rows in table.items():
                    started = time.process_time()
                    rows.append(scores(space, searched(space, SAMPLERS[name](seed))))
                    seconds[name] += time.process_time() - started
            for name, rows in table.items():
                low, middle, high = np.quantile(np.array(rows), [0.25, 0.5, 0.75], 0)
                cells = "".join(f"{m:>8.2f} ({a:5.2f} {b:5.2f})" for a, m, b in zip(low, middle, high, strict=True))
                print(
                    f"{title:7}{family.__name__:16}{name:8}{cells}   {seconds[name] / options.seeds:.1f} s", flush=True
                )


if __name__ == "__main__":
    main()
