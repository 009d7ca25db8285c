"""Everything that is derived from a program alone and shared by all of its folds; one object per program.

    program.vmg.graph.ports              # computed when first asked for, kept as long as the program's graphs
    program.vmg.graph.once(layout_plans) # the same for data that others derive from a program

Whoever compiles a program makes its graph (`Program.vmg`, `VMG.of`); folded graphs and mappings refer to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from allo_dse.common.records import Frozen, Ints, keep, replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import Grid, IntArray, piece_grids, pieces_of

from ..axes import kernel_feeds, separate_axes
from .groups import NodeGroup, Shared
from .kernel_graph import KernelGraph, TaskGraph
from .ports import ClassTasks, ProgramPorts, class_tasks, tokens_said

if TYPE_CHECKING:
    from .token_order import ClassOrder

_FEWEST_GROUPS, _MOST_GROUPS = 8, 256
MOST_TASKS = 1 << 22
"""Tasks of all folds, and of all programs, whose data per task is kept: some 100 bytes each. The same for the groups of
a program, if each had all tasks."""
_LEAST_TASKS = 1 << 17
"""Least number of tasks that a program counts for, since its groups take more memory than its data per task."""
_FORGOTTEN = ("edges", "tokens", "class_tasks", "token_orders", "early_puts", "_groups")
_USED: WeakValueDictionary[int, ProgramGraph] = WeakValueDictionary()


class ProgramGraph(TaskGraph, Shared):
    """Tasks and streams of a program, and other data that all of its folds share.

    Backends keep here, with `once`, what all folds of a program share on their devices.
    """

    def use(self) -> None:
        """Note that the program is in use; forget data per task, and groups, of programs that were used least lately.

        They are computed again when asked for.
        """
        _USED.pop(id(self), None)
        _USED[id(self)], tasks = self, 0
        for graph in reversed(list(_USED.values())):
            tasks += max(_LEAST_TASKS, graph.program.task_count)
            if tasks > MOST_TASKS and graph is not self:
                del _USED[id(graph)]
                for name in _FORGOTTEN:
                    vars(graph).pop(name, None)

    @cached_property
    def kernels(self) -> KernelGraph:
        """The kernels and the streams between them."""
        return KernelGraph(kernel_feeds(self.program))

    @cached_property
    def separate(self) -> tuple[Ints, ...]:
        """Per kernel the axes along which tasks exchange tokens with tasks at the same place only."""
        return separate_axes(self.program, self.rules, self.kernels.feeds)

    @cached_property
    def slice(self) -> ProgramGraph:
        """The tasks at the first place along all separate axes; those at other places exchange tokens alike."""
        kernels = (
            replace(kernel, mesh=tuple(1 if axis in cut else n for axis, n in enumerate(kernel.mesh)))
            for kernel, cut in zip(self.program.kernels, self.separate, strict=True)
        )
        return ProgramGraph(replace(self.program, kernels=tuple(kernels)))

    @cached_property
    def order(self) -> KernelGraph:
        """The single tasks of a small program and the streams between them."""
        edges, count = self.edges, self.program.task_count
        feeds = np.zeros((count, count), bool)
        feeds[edges.source, edges.target] = True
        np.fill_diagonal(feeds, False)
        return KernelGraph(feeds)

    @cached_property
    def ports(self) -> ProgramPorts:
        """The ports of every task class."""
        return ProgramPorts.of(self.program)

    @cached_property
    def tokens(self) -> IntArray:
        """Per stream, how many tokens a task moves through it."""
        return tokens_said(self.program, self.class_tasks)

    @cached_property
    def class_tasks(self) -> tuple[ClassTasks, ...]:
        """The tasks of every class, and where their tiles and streams are."""
        return class_tasks(self.program)

    @cached_property
    def token_orders(self) -> tuple[ClassOrder, ...] | None:
        """The order of gets and puts of every task; None where data decides it."""
        from .token_order import token_orders  # with MLIR, which programs that are only read do without

        return token_orders(self.class_tasks)

    @cached_property
    def early_puts(self) -> IntArray:
        """Per stream, 1 if its producer puts to it before it gets from the same array."""
        from .token_order import early_puts

        return early_puts(self.program, self.class_tasks, self.token_orders)

    def groups(self, folds: Hashable, make: Callable[[], Sequence[NodeGroup]]) -> tuple[NodeGroup, ...]:
        """The groups of nodes that certain folds of certain kernels make, shared by all folds of the program that have
        them. The latest are kept."""
        found = self._groups.pop(folds, None)
        return keep(self._groups, folds, tuple(make()) if found is None else found, self._most_groups)

    @cached_property
    def _groups(self) -> dict[Hashable, tuple[NodeGroup, ...]]:
        return {}

    @property
    def _most_groups(self) -> int:
        """Folds of a single kernel have all of their groups, or none, in common; others recur with other kernels'."""
        if len(self.program.kernels) == 1:
            return _FEWEST_GROUPS
        return min(_MOST_GROUPS, max(_FEWEST_GROUPS, MOST_TASKS // self.program.task_count))


class TensorPieces(Frozen):
    """The pieces of each tensor that tasks read, and those that they write, in ascending order.

    Attributes:
        grids: see `piece_grids`.
        words: elements of each piece.
    """

    reads: Mapping[str, IntArray]
    writes: Mapping[str, IntArray]
    grids: Mapping[str, Grid]
    words: Mapping[str, int]

    @classmethod
    def of(cls, program: CompiledProgram) -> TensorPieces:
        """Return the pieces of tensors that a program's tasks use."""
        used = {does: defaultdict[str, list[IntArray]](list) for does in ("reads", "writes")}
        grids, words = piece_grids(program.tensor_ports), dict[str, int]()
        for own, _, pids in program.tasks_by_class:
            for port in own.tensor_ports:
                name = port.tensor.name
                pieces = pieces_of(port, pids, grids[name])
                for does, found in used.items():
                    found[name].append(pieces if getattr(port, does) else pieces[:0])
                words[name] = math.prod(port.tensor.shape) // math.prod(grids[name])
        reads, writes = ({n: np.unique(np.concatenate(p)) for n, p in found.items()} for found in used.values())
        return cls(reads, writes, grids, words)
