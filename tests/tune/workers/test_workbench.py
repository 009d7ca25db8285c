"""A worker whose evaluator waits looks for designs meanwhile."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import numpy as np

from allo_dse.eval.evaluator import Metrics, needs
from allo_dse.tune.store.record import Measurement
from allo_dse.tune.workers.pool import Task
from allo_dse.tune.workers.surveyor import Lease, Survey
from allo_dse.tune.workers.workbench import Turns, Workbench
from tests.tune.fakes import fake_study
from tests.tune.search.exact.test_by_bounds import Bounded

PATIENCE = 60.0  # seconds, of a test that fails


def lease(turn: int) -> Lease:
    return Lease(0, 1, turn, 4, 10**6, np.empty((0, 3)), [])


def test_who_wants_a_turn_gets_it_when_the_other_pauses() -> None:
    turns, together, stop = Turns(), [], Event()

    def look() -> None:
        with turns.now():
            while not stop.is_set():
                together.append(+1)
                together.append(-1)
                turns.pause()

    thread = Thread(target=look, daemon=True)
    thread.start()
    for _ in range(100):
        with turns.now():
            assert sum(together) == 0
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_designs_are_looked_for_while_an_evaluator_waits() -> None:
    begun, gate = Event(), Event()

    class Waiting(Bounded):
        waits = True

        def evaluate(self, design: Any) -> Metrics:
            begun.set()
            assert gate.wait(PATIENCE)
            return super().evaluate(design)

    study = fake_study(size=128, at_most=4, max_nodes=4, evaluator=Waiting)
    asked = needs(study.make_evaluator())
    assert asked.waits
    workbench = Workbench(study, [asked])
    first = workbench.fill(lease(0))
    assert isinstance(first, Survey)
    measured: list[Measurement] = []
    task = Task(0, 0, first.found[0].candidate.genes)
    evaluating = Thread(target=lambda: measured.extend(workbench.run([task])), daemon=True)
    evaluating.start()
    assert begun.wait(PATIENCE)
    more: list[Any] = []
    looking = Thread(target=lambda: more.append(workbench.fill(lease(1))), daemon=True)
    looking.start()
    looking.join(PATIENCE)
    assert not measured
    gate.set()
    evaluating.join(PATIENCE)
    assert isinstance(more[0], Survey)
    assert {one.candidate.key for one in more[0].found}.isdisjoint(one.candidate.key for one in first.found)
    assert measured[0].error is None
