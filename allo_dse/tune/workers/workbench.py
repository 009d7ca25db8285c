"""What a worker process does: it evaluates designs, and finds others."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from msgspec import Struct

from allo_dse.common.garbage import collect_rarely
from allo_dse.eval.evaluator import Needs, full_name, why_unavailable
from allo_dse.space.choices.parameters import Meaning
from allo_dse.space.shared_programs import learn, meanings

from ..declare.spec import StudySpec
from ..store.record import Measurement
from .evaluate_one import Bench, make_bench
from .lost_workers import Place, here
from .nursery import Litter, Nursery, Order
from .pool import Task
from .surveyor import Lease, Survey, Surveyor


class Introduction(Struct, frozen=True):
    """What a worker says when it has started.

    Attributes:
        problems: per rung why its evaluator cannot run there.
    """

    place: Place
    problems: list[str | None]


class Turns:
    """What two threads have in common, one of which never waits long: one that evaluates, beside one that looks for
    designs while an evaluator waits for its tool."""

    def __init__(self) -> None:
        self._held, self._next = Lock(), Lock()

    @contextmanager
    def now(self) -> Iterator[None]:
        """Have it as soon as the other pauses."""
        with self._next:
            self._held.acquire()
        try:
            yield
        finally:
            self._held.release()

    def pause(self) -> None:
        """Let the other have it that wants it."""
        self._held.release()
        with self._next:  # held by the other until it has it
            self._held.acquire()


class Workbench:
    """What a worker process has: the study, its space and its evaluators."""

    def __init__(self, source: StudySpec | Callable[[], StudySpec], asked: Sequence[Needs]) -> None:
        self._study = source if isinstance(source, StudySpec) else source()
        self._evaluators = self._study.make_evaluators()
        self._asked = asked
        self._benches: dict[int, Bench] = {}
        self._nursery: Nursery | None = None
        self._surveyor: Surveyor | None = None
        self._turns = Turns()
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def introduce(self) -> Introduction:
        """Say where this is and what it can do; called first, in the process that is the worker's own."""
        collect_rarely()
        return Introduction(here(), [why_unavailable(evaluator) for evaluator in self._evaluators])

    def run(self, tasks: Sequence[Task], programs: Sequence[Meaning] = ()) -> list[Measurement]:
        """Evaluate designs given as genes.

        Args:
            programs: of theirs that others have compiled.
        """
        if programs:
            with self._turns.now():
                learn(self._study.space, programs)
        return [self._run(task) for task in tasks]

    def _run(self, task: Task) -> Measurement:
        evaluator = self._evaluators[task.rung]
        with self._turns.now():
            candidate = self._study.space.decode_genes(task.genes)
        if candidate is None:
            return task.failed("the worker's space does not contain this design", full_name(evaluator), self._name)
        if task.rung not in self._benches:
            self._benches[task.rung] = make_bench(
                self._study, task.rung, evaluator, worker=self._name, asked=self._asked[task.rung]
            )
        return self._benches[task.rung].run(task.number, candidate)

    def find(self, order: Order | Lease) -> tuple[Litter | Survey | None, list[Meaning]]:
        """Find designs, and hand on programs that were compiled for that."""
        found = self.fill(order)
        with self._turns.now():
            return found, meanings(self._study.space)

    def fill(self, order: Order | Lease) -> Litter | Survey | None:
        """Find designs; in a thread of its own where evaluators wait."""
        with self._turns.now():
            return self.breed(order) if isinstance(order, Order) else self._survey(order)

    def breed(self, order: Order) -> Litter:
        """Breed designs."""
        if self._nursery is None:
            self._nursery = Nursery(self._study, self._evaluators[0], self._turns.pause)
        return self._nursery.breed(order)

    def _survey(self, lease: Lease) -> Survey | None:
        if self._surveyor is None:
            self._surveyor = Surveyor(self._study, self._evaluators[0], self._turns.pause)
        return self._surveyor.survey(lease)

    def close(self) -> None:
        """End child processes."""
        for bench in self._benches.values():
            bench.close()
