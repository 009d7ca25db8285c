"""How good is the search? Hypervolume after N evaluations on the GEMM study, for several samplers and seeds.

    python -m benchmarks.sampler_quality [--trials 300] [--seeds 4] [--samplers evolution,random,nsga2] [--study FILE]
    python -m benchmarks.sampler_quality --all --trials 600 --seeds 20 --samplers auto,evolution,random,nsga2,tpe
    python -m benchmarks.sampler_quality --problems osy,mw7,hidden [--samplers evolution,tpe,nsga2,cmaes,gp]

The hypervolume is that of the logarithms of the objectives, from the best value that any run found to a tenth beyond
the worst (a front may consist of the two ends), as a share of what all runs together reach. Designs are simulated once,
whoever proposes them. Besides the mean over seeds the worst seed is shown: a user runs one. TPE (`--samplers tpe`)
takes minutes, and so does `gp`, which needs PyTorch. With `--all` every design of the space is evaluated too, so that
shares, and the evaluations until 99 %, are of the true hypervolume; and it is said how many evaluations would do for
who knew the designs to choose, which no search can be better than.

With `--problems` public problems in plain Optuna are searched instead (`public_problems.py`; `all` for every one):
median and quartiles of 20 seeds after 50, 100 and 200 trials, of the best value (less is better) or of the share of a
box that the front dominates (more is better), and the processor time of a trial. Samplers that need a package that is
not installed are left out.
"""

import argparse
import tempfile
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from allo_dse.eval.evaluator import Evaluator
from allo_dse.tune.search.pareto_front import hypervolume
from allo_dse.tune.study import load_studies
from benchmarks.public_problems import PROBLEMS, SAMPLERS, reached

HERE = Path(__file__).parent
MARKS = (50, 100, 200)
GOAL = 0.99  # share of the hypervolume
WORST = 1.1  # the reference point, where 0 is the best value and 1 the worst
Losses = list[list[float] | None]


class Remembering:
    """An evaluator that measures each design once, and is else the one it stands for."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluator, name)

    def evaluate(self, design: Any) -> Any:
        if design.key not in self._known:
            self._known[design.key] = self._evaluator.evaluate(design)
        return self._known[design.key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=None, help="4, or 20 of public problems")
    parser.add_argument("--samplers", default="")
    parser.add_argument("--problems", default="", help="public problems instead of a study: names, or all")
    parser.add_argument("--study", type=Path, default=HERE.parent / "studies" / "gemm_npu.py")
    parser.add_argument("--all", action="store_true", help="compare with the front of the whole space")
    options = parser.parse_args()
    if options.problems:
        names = PROBLEMS if options.problems == "all" else options.problems.split(",")
        on_problems(names, options.samplers.split(",") if options.samplers else SAMPLERS, options.seeds or 20)
        return
    options.seeds, options.samplers = options.seeds or 4, options.samplers or "evolution,random,nsga2"

    study = load_studies(options.study)[0]
    evaluator = Remembering(study.make_evaluator())
    study._evaluator = evaluator
    names = options.samplers.split(",")
    runs, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            started = time.perf_counter()
            for seed in range(options.seeds):
                sampler = optuna.samplers.GPSampler(seed=seed) if name == "gp" else name
                result = study.run(options.trials, seed=seed, sampler=sampler, verify=False, progress="quiet",
                                   run_dir=Path(folder) / f"{name}{seed}")  # fmt: skip
                losses = [[o.sign * v for o, v in zip(study.objectives, result.values[r.key], strict=True)]
                          if r.key in result.values else None for r in result.records]  # fmt: skip
                runs[name, seed] = losses
            seconds[name] = time.perf_counter() - started
        if options.all:
            whole = study.run(10**6, sampler="exhaustive", verify=False, progress="quiet", run_dir=Path(folder) / "all")
            runs["all", 0] = [[o.sign * v for o, v in zip(study.objectives, values, strict=True)]
                              for values in whole.values.values()]  # fmt: skip

    every = _logarithms([v for losses in runs.values() for v in losses if v])
    low, high = every.min(0), every.max(0)
    span = np.where(high > low, high - low, 1.0)  # an objective that all designs share takes no part
    reference = np.full(len(low), WORST)
    best = hypervolume((every - low) / span, reference)

    def share(losses: Losses) -> float:
        found = [v for v in losses if v]
        scaled = (_logarithms(found) - low) / span if found else np.empty((0, len(low)))
        return hypervolume(scaled, reference) / best

    points = sorted({n for n in (30, 60, 120, 250, 500, 1000, 2000) if n < options.trials} | {options.trials})
    print(
        f"{study.name}: share of the best known hypervolume after N evaluations, mean (worst) of {options.seeds} seeds"
    )
    if options.all:
        fewest = _fewest(_undominated([v for v in runs["all", 0] if v]), share)
        print(f"who knew the designs would need {fewest} of them for {100 * GOAL:.0f} %")
    print(f"{'sampler':12}" + "".join(f"{n:>16}" for n in points) + "   best " + study.objectives[0].name)
    for name in names:
        own = [runs[name, seed] for seed in range(options.seeds)]
        table = np.array([[share(losses[:n]) for n in points] for losses in own])
        reached = [_first(partial(_upto, share, losses), options.trials) for losses in own]
        cells = "".join(f"{m:>9.3f} ({w:.3f})" for m, w in zip(table.mean(0), table.min(0), strict=True))
        first = min(abs(v[0]) for seed in range(options.seeds) for v in runs[name, seed] if v)
        print(f"{name:12}{cells}   {first:,.1f}   ({seconds[name] / options.seeds:.1f} s a run)"
              f"   {100 * GOAL:.0f} % after {np.median(reached):.0f}, quartiles "
              f"{np.quantile(reached, 0.25):.0f} and {np.quantile(reached, 0.75):.0f}", flush=True)  # fmt: skip


def on_problems(problems: Iterable[str], samplers: Iterable[str], seeds: int) -> None:
    """Print what samplers reach on public problems."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    print(f"after {MARKS} trials, median (quartiles) of {seeds} seeds, ms of processor time a trial")
    for problem in problems:
        for sampler in samplers:
            began = time.process_time()
            try:
                found = [reached(PROBLEMS[problem], SAMPLERS[sampler](seed), MARKS) for seed in range(seeds)]
            except (ImportError, ValueError) as error:  # ValueError: CMA-ES has one objective
                print(f"{problem:11}{sampler:10} left out: {error}")
                continue
            cost = 1e3 * (time.process_time() - began) / (seeds * MARKS[-1])
            low, middle, high = np.quantile(found, [0.25, 0.5, 0.75], 0, method="closest_observation")
            cells = "".join(f"{m:>9.3f} ({a:.3f} {b:.3f})" for a, m, b in zip(low, middle, high, strict=True))
            print(f"{problem:11}{sampler:10}{cells}{cost:>8.1f}", flush=True)


def _undominated(losses: list[list[float]]) -> Losses:
    """Those that no other is as good as in every objective."""
    values = np.array(losses)
    return [v for v in losses if not ((values <= v).all(axis=1) & (values < v).any(axis=1)).any()]


def _fewest(losses: Losses, share: Callable[[Losses], float]) -> int:
    """Designs that together reach the goal, each the one that adds most to those before."""
    chosen: Losses = []
    while share(chosen) < GOAL:
        chosen.append(max(losses, key=lambda one: share([*chosen, one])))
    return len(chosen)


def _logarithms(losses: list[list[float]]) -> NDArray[np.float64]:
    """Of each value, (designs, objectives); what is maximised is negative."""
    values = np.array(losses)
    logarithms: NDArray[np.float64] = np.sign(values) * np.log(np.abs(values))
    return logarithms


def _upto(share: Callable[[Losses], float], losses: Losses, count: int) -> float:
    return share(losses[:count])


def _first(share: Callable[[int], float], most: int) -> int:
    """The evaluations until the goal; more designs never dominate less, so that a run reaches it at one place."""
    return bisect_left(range(most), GOAL, key=share)


if __name__ == "__main__":
    main()
