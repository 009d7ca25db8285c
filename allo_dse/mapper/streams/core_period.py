"""What a core of an NPU design does in one period of its schedule, as rows of an operation table.

A task takes its input tiles and the room for its output, computes, and gives both away. In between it exchanges tokens
with other cores, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from allo_dse.program.index_maps import IntArray
from allo_dse.simulator.network.tables import Table

from ..graph.node_schedules import Flags, GroupSchedule
from .channels import NodeLinks
from .leaf_steps import Use, leaf_steps


def core_period(table: Table, schedule: GroupSchedule, ticks: IntArray, external: NodeLinks, steady: bool) -> None:
    """One period of a core, leaf after leaf; equal leaves in a row become a repeat."""
    count = len(schedule.ports)
    moves = [port.steady if steady else port.first for port in schedule.ports]
    acquires = [_acquires(m) if port.key[1] == "out" else m for port, m in zip(schedule.ports, moves, strict=True)]
    columns = [ticks, *acquires, *moves, *(port.last_use for port in schedule.ports)]
    columns.append(external.uses.codes)
    signature = np.stack(columns, axis=1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], (signature[1:] != signature[:-1]).any(axis=1))))
    lengths = np.diff(np.append(starts, len(ticks)))
    for leaf, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        with table.repeat(length):
            for p in range(count):
                if acquires[p][leaf]:
                    table.get(2 * p if schedule.ports[p].key[1] == "in" else 2 * p + 1)
            _work(table, count, int(ticks[leaf]), external.uses.of(leaf))
            for p, port in enumerate(schedule.ports):
                if port.key[1] == "in" and port.last_use[leaf]:
                    table.put(2 * p + 1)
                if port.key[1] == "out" and moves[p][leaf]:
                    table.put(2 * p)


def _work(table: Table, first: int, ticks: int, uses: Sequence[Use]) -> None:
    """The work of one leaf; channels are FIFOs from number `first` on."""
    for step, alike in groupby(leaf_steps(ticks, uses)):
        with table.repeat(sum(1 for _ in alike)):
            step.write(table, first)


def _acquires(stores: Flags) -> Flags:
    """Leaves at which an output slot is taken: where accumulation begins, after the previous tile was given away.

    After the last tile of a period that is the next period's first leaf, whatever leaves come in between.
    """
    to_come: Flags = np.logical_or.accumulate(stores[::-1])[::-1]
    return np.concatenate(([True], stores[:-1])) & to_come
