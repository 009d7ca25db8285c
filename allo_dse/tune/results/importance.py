"""Importance of choices, for a run's summary, the page and the report."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_WEIGHED = 1000  # designs; enough for a stable order, in half a second
LEAST_WEIGHED = 20


def weighed(count: int) -> NDArray[np.int64]:
    """Positions of the designs that are looked at: all, or of many an even sample."""
    return np.linspace(0, count - 1, min(count, MOST_WEIGHED)).astype(np.int64)


def importances(choices: Mapping[str, Sequence[Hashable]], losses: Sequence[float]) -> dict[str, float]:
    """Return how much each choice decides whether losses are small; largest first, with sum 1.

    PED-ANOVA (S. Watanabe, A. Bansal and F. Hutter, 2023) as Optuna computes it, for values without an order. Empty if
    there are fewer than `LEAST_WEIGHED` designs, or nothing varies.

    Args:
        choices: for each choice, its value in every design; None in a design that does not make the choice.
    """
    varying = {name: numbers for name, values in choices.items() if any(numbers := _numbered(values))}
    if len(losses) < LEAST_WEIGHED or not varying:
        return {}
    import optuna  # imported late: it takes as long as a small run

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spread: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(range(max(numbers) + 1)) for name, numbers in varying.items()
    }
    rows = [dict(zip(varying, row, strict=True)) for row in zip(*varying.values(), strict=True)]
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.trial.create_trial(params=row, distributions=spread, value=loss)
            for row, loss in zip(rows, losses, strict=True)
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # less is better; no tenth of the designs stands out
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Number values by first occurrence."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
