"""What tells designs apart, and which parameters matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .table import RunTable

IMPORTANCE_TRIALS = 2000
"""Designs that the importance is computed from: enough for a stable order, and fast."""
DECIDING = ("objective", "parameter", "mapping")


@dataclass(frozen=True)
class Difference:
    """A column in which two designs differ.

    Attributes:
        change: relative to the first, of numbers other than zero; 0.1 is 10 % more.
        better: whether the second is better, for objectives; else None.
    """

    name: str
    kind: str
    first: Any
    second: Any
    change: float | None
    better: bool | None


def differences(
    table: RunTable, first: int, other: RunTable, second: int, kinds: tuple[str, ...] = (*DECIDING, "metric")
) -> list[Difference]:
    """What tells the second design from the first."""
    names = [n for n, c in {**table.columns, **other.columns}.items() if c.kind in kinds]
    directions = {o.name: o.sign for o in table.facts.objectives}
    found = []
    for name in names:
        a, b = _value(table, name, first), _value(other, name, second)
        if a == b:
            continue
        column = table.columns.get(name) or other.columns[name]
        change = None
        if isinstance(a, int | float) and isinstance(b, int | float) and a:
            change = (b - a) / abs(a)
        better = None
        if name in directions and isinstance(a, int | float) and isinstance(b, int | float):
            better = directions[name] * (b - a) < 0
        found.append(Difference(name, column.kind, a, b, change, better))
    return found


def _value(table: RunTable, name: str, row: int) -> Any:
    column = table.columns.get(name)
    return None if column is None else column.value(row)


def importance(table: RunTable, objective: str) -> dict[str, float]:
    """How much each varying parameter decides whether a design is among the best in an objective; sums to 1.

    PED-ANOVA (Watanabe, Bansal and Hutter, 2023) as Optuna computes it, on an even sample of the feasible designs.
    Empty when there are too few designs, or nothing varies.
    """
    import optuna

    names = table.names("parameter", "mapping", varying=True)
    rows = np.flatnonzero(table.ok & ~np.isnan(table.numbers(objective)))
    if len(rows) > IMPORTANCE_TRIALS:
        rows = rows[np.linspace(0, len(rows) - 1, IMPORTANCE_TRIALS).astype(np.int64)]
    codes = {name: table.columns[name].codes[rows] for name in names}
    names = [name for name in names if len(np.unique(codes[name])) > 1]
    if len(rows) < 20 or not names:
        return {}
    sizes = {name: int(codes[name].max()) + 2 for name in names}
    spread = {n: optuna.distributions.CategoricalDistribution(list(range(sizes[n]))) for n in names}
    sign = next((o.sign for o in table.facts.objectives if o.name == objective), 1.0)
    losses = (sign * table.numbers(objective)[rows]).tolist()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: int(codes[name][i]) + 1 for name in names}, distributions=spread, value=loss
            )
            for i, loss in enumerate(losses)
        ]
    )
    found = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator(), params=names
    )
    return dict(sorted(found.items(), key=lambda item: -item[1]))
