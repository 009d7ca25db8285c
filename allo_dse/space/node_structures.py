"""The search over single tasks, for programs whose kernels cannot be folded as a whole.

    Study(..., structures=NodeStructures(program, device))

Every task is a choice: a node of its own, or that of a task before it. Small programs are searched exhaustively; of
larger ones the folds that a beam search finds, and whatever a sampler proposes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from allo_dse.device.device import Device, NpuDevice
from allo_dse.errors import IllegalFold
from allo_dse.mapper.fold.node_fold import NodeFold
from allo_dse.mapper.graph.names import task_names
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.bounds import FoldBounds
from allo_dse.mapper.search.node_search import beam_folds, node_folds

from .encoding import KernelOptions, KernelPlan
from .structures import MapperStructures

MOST_ENUMERATED = 8
"""Programs of more tasks are not enumerated: a set of 8 has 4,140 partitions, one of 12 has 4,213,597."""


class NodeStructures(MapperStructures):
    """Compiles the program once per assignment of its parameters, and folds it task by task.

    Args:
        source: a region, or a function of the parameters that returns one.
        device: its compute tiles bound the number of nodes.
    """

    def choices(self, program: Program) -> Sequence[KernelOptions]:
        """For every task, the tasks before it whose node it can share."""
        return _options(program)

    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> Any:
        """The fold, or None when it needs more nodes than there are."""
        sets: dict[int, list[int]] = {}
        for task, plan in enumerate(plans):
            sets.setdefault(task if plan.joined is None else plan.joined, []).append(task)
        fold = NodeFold.of(program, list(sets.values()))
        try:
            program.vmg.fold(fold)
        except IllegalFold:
            return None
        return fold if fold.node_count <= self.max_nodes else None

    def plans(self, fold: Any) -> list[KernelPlan]:
        """The inverse of `fold`."""
        head = {task: own for own in fold.nodes for task in own}
        return [KernelPlan((), (), self._joined(head.get(name), name, fold.names)) for name in fold.names]

    @staticmethod
    def _joined(node: tuple[str, ...] | None, task: str, names: tuple[str, ...]) -> int | None:
        if node is None:
            return None
        first = min(names.index(name) for name in node)
        return None if names[first] == task else first

    def folds(self, program: Program) -> Iterator[Any]:
        """Every fold of a small program, but for those that exchange alike tasks; the beam search's of a larger one."""
        yield from _folds(program, self.max_nodes, self._device)

    def fold_count(self, program: Program) -> int:
        return len(_folds(program, self.max_nodes, self._device))

    def contains(self, program: Program, fold: Any) -> bool:
        """Whether a fold is one of `folds`."""
        return fold in _folds(program, self.max_nodes, self._device)


@lru_cache(maxsize=64)
def _options(program: Program) -> tuple[KernelOptions, ...]:
    return tuple(KernelOptions(name, (), tuple(range(task))) for task, name in enumerate(task_names(program)))


@lru_cache(maxsize=64)
def _folds(program: Program, max_nodes: int, device: Device) -> tuple[NodeFold, ...]:
    bounds = FoldBounds(program, device) if isinstance(device, NpuDevice) else None

    def fits(tasks: Sequence[int]) -> bool:
        return bounds is None or bounds.tasks_fit(tasks)

    if program.task_count <= MOST_ENUMERATED:
        return tuple(node_folds(program, max_nodes, fits=fits))
    return tuple(beam_folds(program, max_nodes, fits=fits))
