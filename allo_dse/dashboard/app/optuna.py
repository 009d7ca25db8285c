"""Optuna's own dashboard on the same run."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..data.board import Board
from ..data.table.table import RunTable

if TYPE_CHECKING:
    import optuna

MAX_TRIALS = 5_000
"""Designs that are handed over; Optuna's dashboard sends all of them to the browser."""


def storage_of(board: Board) -> optuna.storages.InMemoryStorage:
    """The runs as studies in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.InMemoryStorage()
    for name, run in zip(board.names, board.runs, strict=True):
        study = optuna.create_study(
            study_name=name, storage=storage, directions=[o.direction for o in run.facts.objectives]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(run.objectives)
        study.add_trials(_trials(run))
    return storage


def _trials(run: RunTable) -> list[optuna.trial.FrozenTrial]:
    import optuna

    names = run.names("parameter", "mapping", varying=True)
    choices: dict[str, optuna.distributions.BaseDistribution] = {
        n: optuna.distributions.CategoricalDistribution([*run.columns[n].categories, None]) for n in names
    }
    first = max(0, len(run) - MAX_TRIALS)
    columns = {n: (run.columns[n].codes, [*run.columns[n].categories, None]) for n in names}
    ok, losses = run.ok, [run.numbers(n) for n in run.objectives]
    made = []
    for row in range(first, len(run)):
        params = {n: values[codes[row]] for n, (codes, values) in columns.items()}
        values = [float(column[row]) for column in losses]
        failed = any(v != v for v in values)
        made.append(
            optuna.trial.create_trial(
                params=params,
                distributions=choices,
                values=None if failed else values,
                state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
                user_attrs={"design": run.keys[row], "feasible": bool(ok[row])},
            )
        )
    return made
