"""Single tasks gathered in nodes, for programs whose kernels cannot be folded as a whole.

    Study(..., folds="tasks")

Every task is a choice: a node of its own, or that of a task before it. Small programs are searched exhaustively; of
larger ones the folds that a beam search finds, and whatever a sampler proposes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allo_dse.common.errors import IllegalFold
from allo_dse.device.device import Device
from allo_dse.mapper.fold.node_fold import NodeFold
from allo_dse.mapper.graph.node_names import task_names
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.node_search import anything_fits, beam_folds, node_folds

from .fold_genes import KernelOptions, KernelPlan
from .folds import Fold, FoldChoice, bounds_of

MOST_ENUMERATED = 8
"""Programs of more tasks are not enumerated: a set of 8 has 4,140 partitions, one of 12 has 4,213,597."""


class TaskFolds(FoldChoice):
    """Folds task by task: each is a kernel without axes, which can join any before it.

    Args:
        device: its compute tiles bound the number of nodes.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device.max_nodes)
        self._device = device
        self._options: dict[Program, tuple[KernelOptions, ...]] = {}
        self._found: dict[Program, tuple[NodeFold, ...]] = {}

    def kernels(self, program: Program) -> Sequence[KernelOptions]:
        """For every task, the tasks before it whose node it can share."""
        if program not in self._options:
            names = task_names(program)
            self._options[program] = tuple(KernelOptions(name, (), tuple(range(n))) for n, name in enumerate(names))
        return self._options[program]

    def fold(self, program: Program, plans: Sequence[KernelPlan]) -> NodeFold | None:
        """The fold, or None when it needs more nodes than there are."""
        sets: dict[int, list[int]] = {}
        for task, plan in enumerate(plans):
            sets.setdefault(task if plan.joined is None else plan.joined, []).append(task)
        fold = NodeFold.of(program.vmg.graph, list(sets.values()))
        try:
            program.vmg.fold(fold)
        except IllegalFold:
            return None
        return fold if fold.node_count <= self.max_nodes else None

    def plans(self, fold: Fold) -> list[KernelPlan]:
        if not isinstance(fold, NodeFold):
            raise IllegalFold("the fold is one of whole kernels", hint='declare the study with folds="kernels"')
        head = {task: own for own in fold.nodes for task in own}
        return [KernelPlan((), (), self._joined(head.get(name), name, fold.names)) for name in fold.names]

    @staticmethod
    def _joined(node: tuple[str, ...] | None, task: str, names: tuple[str, ...]) -> int | None:
        if node is None:
            return None
        first = min(names.index(name) for name in node)
        return None if names[first] == task else first

    def folds(self, program: Program) -> Iterator[Fold]:
        """Every fold of a small program, but for those that exchange alike tasks; the beam search's of a larger one."""
        yield from self._node_folds(program)

    def fold_count(self, program: Program) -> int:
        return len(self._node_folds(program))

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "folds": "tasks"}

    def _node_folds(self, program: Program) -> tuple[NodeFold, ...]:
        if program not in self._found:
            graph = program.vmg.graph
            bounds = bounds_of(graph, self._device)
            search = node_folds if program.task_count <= MOST_ENUMERATED else beam_folds
            fits = bounds.tasks_fit if bounds is not None else anything_fits
            self._found[program] = tuple(search(graph, self.max_nodes, fits=fits))
        return self._found[program]
