"""Designs as Optuna trials with real parameter names and values, for Optuna's plots, dashboard and storages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from allo_dse.space.genes import Gene

from ..declare.spec import StudySpec
from ..declare.trial_parameters import TrialParameters
from ..search.scoring import Scorer
from ..store.record import Record
from .causes import choices_of


class Trials:
    """Converts between designs of a study and Optuna trials."""

    def __init__(self, study: StudySpec) -> None:
        self.study = study
        self._scorer = Scorer(study.objectives, study.constraints)
        self.parameters = TrialParameters(study)

    def trial(self, record: Record, state: TrialState, **attributes: Any) -> FrozenTrial:
        """Return the trial of a record.

        Args:
            attributes: user attributes in addition to key, parameters of the program, evaluator, metrics, error and
                seconds.
        """
        outcome, chosen = self._scorer.outcome(record), choices_of(record)
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        genes = record.genes
        self.study.space.learn(genes)
        for gene_name, number in genes.items():
            one = self.parameters.of(gene_name, self.study.space.genes[gene_name])
            # Genes may be illegal together; the design has the nearest legal values.
            actual = chosen.get(one.name)
            params[one.name] = actual if _contains(one.distribution, actual) else one.value(number)
            distributions[one.name] = one.distribution
        return optuna.trial.create_trial(
            state=state,
            values=list(outcome.values) if outcome.values and state == TrialState.COMPLETE else None,
            params=params,
            distributions=distributions,
            constraints=dict(outcome.constraints),
            user_attrs={
                "key": record.key, **attributes, "params": record.params, "evaluator": record.measured_by,
                "metrics": record.metrics, "error": record.error, "seconds": record.seconds,
            },
        )  # fmt: skip


def _contains(distribution: BaseDistribution, value: Any) -> bool:
    if value is None:
        return False
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (TypeError, ValueError):
        return False


def states_of(
    values: Mapping[str, tuple[float, ...]], wrong: Collection[str], front: Collection[str]
) -> Callable[[Record], TrialState]:
    """Return a function that gives the state of each design's trial, so that Optuna's `best_trials` are the front.

    Failures, also of higher evaluators and of verification, are FAIL. Designs that were not promoted to the evaluator
    that decides, and those that another design beats at equal objective values, are PRUNED.

    Args:
        values: of the objectives, by key.
        wrong, front: keys of designs that computed wrong numbers, and of those on the front.
    """
    wrong, front = set(wrong), set(front)
    on_front = {tuple(values[key]) for key in front}

    def state(record: Record) -> TrialState:
        if record.status == "failed" or record.key in wrong:
            return TrialState.FAIL
        if record.status == "infeasible":
            return TrialState.COMPLETE
        beaten = record.key not in front and tuple(values.get(record.key, ())) in on_front
        return TrialState.PRUNED if beaten or record.key not in values else TrialState.COMPLETE

    return state


def study_in_memory(study: StudySpec, records: Sequence[Record], state: Callable[[Record], TrialState]) -> optuna.Study:
    """Return records as trials of a study of Optuna in memory, in the order of the results."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = Trials(study)
    made = optuna.create_study(study_name=study.name, directions=[one.direction for one in study.objectives])
    name_metrics(made, [one.name for one in study.objectives])
    made.add_trials([trials.trial(record, state(record)) for record in records])
    return made


def name_metrics(study: optuna.Study, names: Sequence[str]) -> None:
    """Name the objectives of an Optuna study, which uses the names in its plots and tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if study.metric_names != list(names):
            study.set_metric_names(list(names))


def numbers_of(trials: Trials, params: Mapping[str, Any]) -> Callable[[str, Gene], int]:
    """Return a function that gives genes the values of a trial's parameters; the lowest where it has none."""

    def suggest(gene_name: str, gene: Gene) -> int:
        one = trials.parameters.of(gene_name, gene)
        return one.number(params[one.name]) if one.name in params else gene.low

    return suggest
