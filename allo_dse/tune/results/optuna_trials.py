"""A run's designs as Optuna's trials: for Optuna's plots, importances and dashboard, and for storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allo_dse.space.gene import Gene

from ..declare.spec import StudySpec
from ..search.judge import Judge
from ..store.record import Record

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


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
