"""A sampler is a class of Optuna's: this one tries the neighbours of the best design so far.

    python examples/add_a_sampler.py

`run(sampler=...)` takes any `optuna.samplers.BaseSampler`. The run tells it every design, infeasible ones with how far
off they are.
"""

import random
import tempfile
from typing import Any

import optuna
from scale import study


class Neighbours(optuna.samplers.BaseSampler):
    """Changes one gene of the best trial by one step; random where there is no trial yet."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: optuna.Study, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: optuna.Study, trial: Any, param_name: str, param_distribution: Any) -> Any:
        values = self._values(param_distribution)
        known = [t for t in study.get_trials(deepcopy=False) if t.values and param_name in t.params]
        if not known:
            return self._random.choice(values)
        best = min(known, key=lambda t: t.values[0])
        place = values.index(best.params[param_name]) + self._random.choice((-1, 0, 1))
        return values[min(max(place, 0), len(values) - 1)]

    @staticmethod
    def _values(distribution: Any) -> list[Any]:
        """Genes are integers in a range, or one of a few choices."""
        if isinstance(distribution, optuna.distributions.CategoricalDistribution):
            return list(distribution.choices)
        return list(range(distribution.low, distribution.high + 1))


with tempfile.TemporaryDirectory() as folder:
    result = study().run(trials=20, sampler=Neighbours(), run_dir=folder, progress="quiet")
    print(result.pareto[["latency_cycles", "dsp", "P"]].head(3).to_string(index=False))
