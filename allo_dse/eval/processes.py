"""Processes of a folded graph, for code and circuits that are generated from it."""

from __future__ import annotations

from collections.abc import Mapping

from allo_dse.common.records import Frozen, Ints
from allo_dse.mapper.fold.vmg import VMG

from .execute.run import wiring_of


class Folding(Frozen):
    """Assignment of tasks to processes and of streams to FIFOs.

    Attributes:
        nodes: per process the tasks it executes, one after the other, as task ids.
        fifo: per stream of the program, the number of its FIFO.
        depth: per FIFO, the tokens it holds.
        turn: per task, after how many others it comes; tiles of tensors that stay in DRAM move in this order.
    """

    nodes: tuple[Ints, ...]
    fifo: Ints
    depth: Ints
    turn: Ints


def folding_of(vmg: VMG, depths: Mapping[str, int] | None = None) -> Folding | None:
    """Return the groups of tasks that share a process; None if each task has its own.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    if vmg.node_count == vmg.task_count:
        return None
    wiring = wiring_of(vmg, depths or {})
    nodes = tuple(tuple(row) for group in vmg.groups for row in group.leaves.tasks().tolist())
    return Folding(nodes, tuple(wiring.fifo.tolist()), tuple(wiring.depth.tolist()), tuple(vmg.uses.turns.tolist()))
