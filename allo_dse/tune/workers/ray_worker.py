"""The worker process: it decodes, checks and evaluates designs that the driver has proposed."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from msgspec import Struct

from allo_dse.common.processes import collect_rarely
from allo_dse.eval.evaluator import Needs, full_name, why_unavailable
from allo_dse.space.choices.parameters import Meaning
from allo_dse.space.shared_programs import learn

from ..declare.pickled_study import PickledStudy
from ..store.record import Measurement
from .evaluate_one import RungEvaluator, make_rung_evaluator
from .pool import Place, Task, here


class WorkerReport(Struct, frozen=True):
    """Message from a worker that has started.

    Attributes:
        problems: for each rung, why its evaluator cannot run there.
    """

    place: Place
    problems: list[str | None]


class RayWorker:
    """A worker: the study, its space and its evaluators.

    Args:
        pickled: the study.
        asked: needs of each rung's evaluator.
    """

    def __init__(self, pickled: PickledStudy, asked: Sequence[Needs]) -> None:
        self._study = pickled.load()
        self._evaluators = self._study.make_evaluators()
        self._asked = asked
        self._evaluators_by_rung: dict[int, RungEvaluator] = {}
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def report(self) -> WorkerReport:
        """Report the worker's place and abilities; called first, in its process."""
        collect_rarely()
        return WorkerReport(here(), [why_unavailable(evaluator) for evaluator in self._evaluators])

    def run(self, tasks: Sequence[Task], programs: Sequence[Meaning] = ()) -> list[Measurement]:
        """Evaluate designs given as genes.

        Args:
            programs: programs of these designs that the driver has compiled.
        """
        if programs:
            learn(self._study.space, programs)
        return [self._run(task) for task in tasks]

    def _run(self, task: Task) -> Measurement:
        evaluator = self._evaluators[task.rung]
        candidate = self._study.space.decode_genes(task.genes)
        if candidate is None:
            return task.failed("the worker's space does not contain this design", full_name(evaluator), self._name)
        if task.rung not in self._evaluators_by_rung:
            self._evaluators_by_rung[task.rung] = make_rung_evaluator(
                self._study, task.rung, evaluator, worker=self._name, asked=self._asked[task.rung]
            )
        return self._evaluators_by_rung[task.rung].run(task.number, candidate)

    def close(self) -> None:
        """End child processes."""
        for rung_evaluator in self._evaluators_by_rung.values():
            rung_evaluator.close()
