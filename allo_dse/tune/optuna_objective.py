"""A study as an objective function for Optuna."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import optuna

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.eval.evaluator import full_name, needs
from allo_dse.space.sampler.pareto import FAILED

from .results.best import BestDesign
from .results.optuna_trials import Trials, name_metrics, numbers_of
from .search.scoring import Scorer
from .search.screening import excess
from .store.record import Measurement, Record, record_of
from .workers.evaluate_one import INLINE_WORKER, RungEvaluator, make_rung_evaluator

if TYPE_CHECKING:
    from allo_dse.space.genes import Gene
    from allo_dse.space.space import Candidate

    from .study import Study

LIMITS = "device limits"
"""Constraint of a trial: total excess over limits of the device, each as a share of the limit."""


class StudyObjective:
    """Objective function of Optuna that evaluates designs of a study; `objective` makes it.

    Attributes:
        directions: of the objectives, for `optuna.create_study(directions=...)`.
        metric_names: names of the objectives.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.directions: list[Any] = [one.direction for one in study.objectives]
        self.metric_names = [one.name for one in study.objectives]
        self._evaluators = study.make_evaluators()
        study.check_metric_names(self._evaluators)
        self._scorer = Scorer(study.objectives, study.constraints)
        self._trials = Trials(study)
        self._known: dict[tuple[str, int], Record] = {}
        self._lock = threading.RLock()
        self._own = threading.local()  # an isolated evaluator serves one thread

    def __call__(self, trial: optuna.Trial) -> float | tuple[float, ...]:
        """Return the objective values of the design that a trial chooses.

        A design that fails to evaluate has NaN as its values, which Optuna counts as a failed trial.

        Raises:
            optuna.TrialPruned: for parameters without a legal design.
            StudyError: if the trial's study has other directions.
        """
        self._check_study(getattr(trial, "study", None))
        candidate = self._legal(trial)
        trial.set_user_attr("key", candidate.key)
        record = self._measured(candidate, trial.number, 0)
        for rung in range(1, len(self._evaluators)):
            if record.status != "ok":
                break
            if len(self.directions) == 1:
                trial.report(self._values(record)[0], rung - 1)
                if trial.should_prune():
                    raise optuna.TrialPruned(f"{full_name(self._evaluators[rung])} is not worth running")
            record = self._scorer.merged(record, self._measured(candidate, trial.number, rung))
        for name, amount in {LIMITS: 0.0, **self._scorer.outcome(record).constraints}.items():
            if name != FAILED:
                trial.set_constraint(name, amount)
        trial.set_user_attr("params", record.params)
        trial.set_user_attr("metrics", record.metrics)
        if record.status == "failed":
            trial.set_user_attr("error", record.error)
            return self._returned((float("nan"),) * len(self.directions))
        return self._returned(self._values(record))

    def design(self, trial: optuna.trial.FrozenTrial) -> BestDesign:
        """Return the design of a finished trial, to explain and to export.

        Raises:
            StudyError: if the trial has none.
        """
        with self._lock:
            candidate = self.study.space.decode(numbers_of(self._trials, trial.params))
        metrics = trial.user_attrs.get("metrics")
        if candidate is None or metrics is None:
            raise StudyError(f"trial {trial.number} has no design that was evaluated")
        found = Measurement(number=trial.number, evaluator=full_name(self._evaluators[-1]), metrics=metrics)
        return BestDesign(self.study, self._scorer.scored(record_of(candidate, found)))

    def _check_study(self, study: optuna.Study | None) -> None:
        if study is None:
            return
        directions = [direction.name.lower() for direction in study.directions]
        if directions != self.directions:
            raise StudyError(
                f"the Optuna study has directions {directions}, the objectives of {self.study.name!r} "
                f"{self.directions}",
                hint="optuna.create_study(directions=objective.directions)",
            )
        name_metrics(study, self.metric_names)

    def _legal(self, trial: optuna.Trial) -> Candidate:
        """Return the design of a trial."""

        def suggest(gene_name: str, gene: Gene) -> int:
            return self._trials.parameters.of(gene_name, gene).suggest(trial)

        with self._lock:
            try:
                candidate = self.study.space.decode(suggest)
                broken = [] if candidate is None else list(self.study.check(candidate.design))
            except AlloDseError as error:
                candidate, broken = None, [error.message]
        if candidate is not None and not broken:
            return candidate
        for constraint in self.study.constraints:
            trial.set_constraint(constraint.name, 0.0)
        trial.set_constraint(LIMITS, sum(map(excess, broken)) or 1.0)
        reasons = [str(one) for one in broken] or ["a condition of the study or a folding rule forbids these values"]
        trial.set_user_attr("violations", reasons)
        raise optuna.TrialPruned(reasons[0])

    def _measured(self, candidate: Candidate, number: int, rung: int) -> Record:
        """Return a design's measurement at a rung. A design that several trials choose is evaluated once."""
        known = self._known.get((candidate.key, rung))
        if known is None:
            known = self._scorer.scored(record_of(candidate, self._evaluated(candidate, number, rung)))
            self._known[candidate.key, rung] = known
        return known

    def _evaluated(self, candidate: Candidate, number: int, rung: int) -> Measurement:
        own: dict[int, RungEvaluator] = vars(self._own).setdefault("evaluators", {})
        if rung not in own:
            own[rung] = make_rung_evaluator(self.study, rung, self._evaluators[rung], worker=INLINE_WORKER)
        with nullcontext() if needs(self._evaluators[rung]).isolate else self._lock:
            return own[rung].run(number, candidate)

    def _values(self, record: Record) -> tuple[float, ...]:
        return tuple((record.values or {})[name] for name in self.metric_names)

    def _returned(self, values: tuple[float, ...]) -> float | tuple[float, ...]:
        return values if len(values) > 1 else values[0]


def objective(study: Study) -> StudyObjective:
    """Return an objective function for `optuna.Study.optimize`, with any sampler, pruner and storage of Optuna.

        objective = dse.objective(study)
        optuna_study = optuna.create_study(directions=objective.directions)
        optuna_study.optimize(objective, n_trials=100)
        objective.design(optuna_study.best_trials[0]).export("build")

    Constraints of the study are those of the trials. Parameters without a legal design are pruned trials, and a design
    whose evaluation fails is a failed trial. With rungs and one objective, a pruner decides which designs the next
    evaluator measures.

    Raises:
        StudyError: if the study reads a metric that its evaluators do not report.
    """
    return StudyObjective(study)
