"""The costs of a program's task classes, shared by its designs."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.device.device import FpgaDevice
from allo_dse.ir.nest import read_nest
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive
from allo_dse.program.tasks import TaskClass

from .plan import plan_of
from .task import TaskCost, task_cost


class ClassCosts:
    """What the task classes of one program cost: computed once for all designs whose directives say the same."""

    def __init__(self, program: CompiledProgram) -> None:
        self._program = program
        self._known: dict[tuple[object, ...], TaskCost] = {}

    def of(
        self, task_class: TaskClass, device: FpgaDevice, schedule: Sequence[Directive], pid: tuple[int, ...] = ()
    ) -> TaskCost:
        """Times and operators of a class, of the task with this pid where tasks of the class differ.

        Raises:
            SimulationError: where control depends on data.
        """
        plan = plan_of(self._program, task_class, read_nest(task_class.body.mlir), schedule)
        key = (device.key, task_class.kernel, task_class.name, pid, plan.key)
        if key not in self._known:
            self._known[key] = task_cost(self._program, task_class, device, schedule, pid)
        return self._known[key]
