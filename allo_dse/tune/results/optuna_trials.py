"""A run's designs as Optuna's trials: for Optuna's plots, importances and dashboard, and for storages."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allo_dse.space.gene import Gene

from ..declare.spec import StudySpec
from ..search.judge import Judge
from ..store.record import Record

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


LEAST_WEIGHED = 20  # designs before importances say anything


class Trials:
    """Makes trials of records: parameters are genes, states COMPLETE or FAIL.

    Args:
        genes: range of every gene met so far (a live view).
    """

    def __init__(self, judge: Judge, genes: Mapping[str, Gene]) -> None:
        self._judge, self._genes = judge, genes
        self._distributions: dict[tuple[str, Gene], BaseDistribution] = {}

    def trial(self, record: Record, **attributes: Any) -> optuna.trial.FrozenTrial:
        """The trial of a record.

        Args:
            attributes: what is to be known of it beside key, parameters of the program, evaluator, metrics, error and
                seconds.
        """
        import optuna

        told = self._judge.told(record)
        state = optuna.trial.TrialState.COMPLETE if told.values else optuna.trial.TrialState.FAIL
        genes = record.genes
        return optuna.trial.create_trial(
            state=state,
            values=list(told.values) if told.values else None,
            params=dict(genes),
            distributions={name: self._distribution(name) for name in genes},
            constraints=dict(told.constraints),
            user_attrs={
                "key": record.key, **attributes, "params": record.params, "evaluator": record.evaluator,
                "metrics": record.metrics, "error": record.error, "seconds": record.seconds,
            },
        )  # fmt: skip

    def _distribution(self, name: str) -> BaseDistribution:
        from allo_dse.space.sampler.distributions import distribution

        gene = self._genes[name]
        found = self._distributions.get((name, gene))
        if found is None:
            found = self._distributions[name, gene] = distribution(gene)
        return found


def study_of(study: StudySpec, records: Sequence[Record]) -> optuna.Study:
    """All records as trials of a study of Optuna in memory, in the order of the results."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for record in records:
        study.space.learn(record.genes)
    trials = Trials(Judge(study.objectives, study.constraints), study.space.genes)
    made = optuna.create_study(study_name=study.name, directions=[o.direction for o in study.objectives])
    made.add_trials([trials.trial(record) for record in records])
    return made


def importances_of(study: StudySpec, records: Sequence[Record]) -> dict[str, float]:
    """The shares of genes in reaching good values of the first objective, the largest first."""
    usable = [record for record in records if record.status == "ok"]
    if len(usable) < LEAST_WEIGHED:
        return {}
    import optuna  # takes as long as a small run

    sign = study.objectives[0].sign
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that less is taken as better, which it is here
        try:
            shares = optuna.importance.get_param_importances(
                study_of(study, usable),
                evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
                target=lambda trial: sign * trial.values[0],
            )
        except (RuntimeError, ValueError):  # no gene differs, or none is in all designs
            return {}
    return {name: share for name, share in shares.items() if share > 0}
