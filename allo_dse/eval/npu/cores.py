"""What a core of an NPU design does in one period of its schedule, as rows of an operation table.

A task takes its input tiles and the room for its output, computes, and gives both away. A task that exchanges several
tokens over one channel does so as a loop would: its work is cut into as many steps, and each step gets, computes and
puts its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from allo_dse.mapper.graph.periods import Flags, GroupSchedule
from allo_dse.program.index_maps import IntArray
from allo_dse.simulator.network.tables import Table

from .links import NodeLinks, Use


@dataclass(frozen=True)
class _Step:
    """A share of a task's work: the channels it gets from first and puts to afterwards, and its ticks."""

    gets: tuple[int, ...]
    puts: tuple[int, ...]
    ticks: int


def core_period(table: Table, schedule: GroupSchedule, ticks: IntArray, external: NodeLinks, steady: bool) -> None:
    """One period of a core, leaf after leaf; equal leaves in a row become a repeat."""
    count = len(schedule.ports)
    moves = [port.steady if steady else port.first for port in schedule.ports]
    acquires = [_acquires(m) if port.key[1] == "out" else m for port, m in zip(schedule.ports, moves, strict=True)]
    columns = [ticks, *acquires, *moves, *(port.last_use for port in schedule.ports)]
    columns.append(_use_codes(external.uses, len(ticks)))
    signature = np.stack(columns, axis=1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], (signature[1:] != signature[:-1]).any(axis=1))))
    lengths = np.diff(np.append(starts, len(ticks)))
    for leaf, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        with table.repeat(length):
            for p in range(count):
                if acquires[p][leaf]:
                    table.get(2 * p if schedule.ports[p].key[1] == "in" else 2 * p + 1)
            _work(table, count, int(ticks[leaf]), external.uses.get(leaf, ()))
            for p, port in enumerate(schedule.ports):
                if port.key[1] == "in" and port.last_use[leaf]:
                    table.put(2 * p + 1)
                if port.key[1] == "out" and moves[p][leaf]:
                    table.put(2 * p)


def _work(table: Table, first: int, ticks: int, uses: Sequence[Use]) -> None:
    """The work of one leaf; channels are FIFOs from number `first` on."""
    for step, alike in groupby(_steps(ticks, uses)):
        with table.repeat(sum(1 for _ in alike)):
            for link in step.gets:
                table.get(2 * (first + link))
            for link in step.puts:
                table.get(2 * (first + link) + 1)
            table.wait(step.ticks)
            for link in step.gets:
                table.put(2 * (first + link) + 1)
            for link in step.puts:
                table.put(2 * (first + link))


def _steps(ticks: int, uses: Sequence[Use]) -> list[_Step]:
    """As many steps as the busiest channel has tokens.

    The tokens of other channels are spread evenly; a single one comes in the first step when its port stands before the
    busiest one's, and else in the last.
    """
    tokens = Counter(uses)
    count = max(tokens.values(), default=1)
    busiest = next((use for use, own in tokens.items() if own == count), None)
    order = list(tokens)
    gets: list[list[int]] = [[] for _ in range(count)]
    puts: list[list[int]] = [[] for _ in range(count)]
    for use, own in tokens.items():
        is_put, link = use
        for token in range(own):
            step = token * count // own
            if own == 1 and busiest is not None and order.index(use) > order.index(busiest):
                step = count - 1
            elif own > 1 and is_put:
                step = -(-(token + 1) * count // own) - 1
            (puts if is_put else gets)[step].append(link)
    share, rest = divmod(ticks, count)
    return [_Step(tuple(gets[i]), tuple(puts[i]), share + (rest if i == count - 1 else 0)) for i in range(count)]


def _use_codes(uses: dict[int, list[Use]], leaves: int) -> IntArray:
    """Per leaf a number that stands for the channels it uses; 0 where it uses none."""
    codes: dict[tuple[Use, ...], int] = {}
    result = np.zeros(leaves, np.int64)
    for leaf, own in uses.items():
        result[leaf] = codes.setdefault(tuple(own), len(codes) + 1)
    return result


def _acquires(stores: Flags) -> Flags:
    """Leaves at which an output slot is taken: where accumulation begins, after the previous tile was given away."""
    return np.concatenate(([True], stores[:-1])) if stores.any() else np.zeros_like(stores)
