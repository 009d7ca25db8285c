"""The costs of a program's task classes, shared by its designs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from allo_dse.compiler.program.compiled import CompiledProgram, Directive, TaskClass
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.observed_control import Observed

from .loops.loop_round import KnownRounds
from .plan import Plan, Planner
from .simplify import simplified
from .task_cost import TaskCost, planned_cost


def observed_of(program: CompiledProgram, task_class: TaskClass, pid: tuple[int, ...], run: int) -> Observed | None:
    """Return the observed control of a task in one of the program's runs; None if no control depends on data."""
    decisions = program.runs[run].of_class(task_class.kernel, task_class.name) if program.runs else {}
    return Observed(decisions[pid]) if decisions else None


class ClassCosts:
    """Costs of the task classes of one program, computed once for all designs with equal directives."""

    def __init__(self, program: CompiledProgram) -> None:
        self._program = program
        self._known: dict[tuple[object, ...], TaskCost] = {}
        self._rounds: dict[object, KnownRounds] = {}
        self._planners: dict[tuple[str, str], Planner] = {}
        self._latest: dict[tuple[str, str], tuple[Sequence[Directive], Plan, Hashable]] = {}

    def _plan(self, task_class: TaskClass, schedule: Sequence[Directive]) -> tuple[Plan, Hashable]:
        """Return a schedule's plan for a class. It is kept for the tasks of the class, which follow one another."""
        key = task_class.kernel, task_class.name
        if key not in self._latest or self._latest[key][0] is not schedule:
            if key not in self._planners:
                self._planners[key] = Planner(self._program, task_class, simplified(task_class.body.mlir))
            plan = self._planners[key].plan(schedule)
            self._latest[key] = schedule, plan, plan.key
        return self._latest[key][1:]

    def of(
        self,
        task_class: TaskClass,
        device: FpgaDevice,
        schedule: Sequence[Directive],
        pid: tuple[int, ...] = (),
        run: int = 0,
    ) -> TaskCost:
        """Times and operators of a class, of the task with this pid where tasks of the class differ.

        Args:
            run: which of the program's runs on given inputs is timed, where data decides.

        Raises:
            SimulationError: where control depends on data.
        """
        plan, said = self._plan(task_class, schedule)
        key = (device.key, task_class.kernel, task_class.name, pid, said, run)
        if key not in self._known:
            observed = observed_of(self._program, task_class, pid, run)
            rounds = self._rounds.setdefault(device.key, KnownRounds(device))
            self._known[key] = planned_cost(task_class, rounds, plan, pid, observed=observed)
        return self._known[key]
