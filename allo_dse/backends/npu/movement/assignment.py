"""Assignment of flows to the memory and shim tiles of columns, decided on counts, so that designs share the result.

A transfer occupies one shim channel and one memory-tile channel; each flow that it carries occupies one memory-tile
channel on the side of the cores. Shim and memory tile of a transfer are in the same column.

    transfer of d input flows      shim MM2S 1, memory tile in 1, out d
    transfer of d output flows     shim S2MM 1, memory tile in d, out 1; d streams from the cores
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from allo_dse.common.records import Frozen, replace

Counts = tuple[int, ...]

Totals = tuple[int, ...]
"""Input flows, input transfers, output flows, output transfers."""

# Loads that the exact search may try before a mapping counts as not assignable. Four tensors need some hundreds.
_MAX_TRIALS = 5_000


class ColumnLimits(Frozen):
    """DMA channels per column: `shim_out` feed the array, `shim_in` drain it.

    Attributes:
        joins: streams from cores that the switch above a memory tile lets into it.
    """

    columns: int
    shim_in: int
    shim_out: int
    memory_in: int
    memory_out: int
    joins: int = 1 << 30

    def transfers(self, direction: str, flows: int) -> int:
        """Return the least transfers of a family of flows: one carries as many as its memory tile can."""
        return -(-flows // (self.memory_out if direction == "in" else min(self.memory_in, self.joins)))

    def demands(self, needs: Totals) -> tuple[tuple[str, int, int], ...]:
        """Return the needs of totals from all columns together: name of the limit, need, and what there is."""
        in_flows, in_transfers, out_flows, out_transfers = needs
        return (
            ("shim_dma_out", in_transfers, self.columns * self.shim_out),
            ("shim_dma_in", out_transfers, self.columns * self.shim_in),
            ("memory_tile_dma_in", in_transfers + out_flows, self.columns * self.memory_in),
            ("memory_tile_dma_out", out_transfers + in_flows, self.columns * self.memory_out),
            ("switch_ports", out_flows, self.columns * self.joins),
        )

    def fit(self, needs: Totals) -> bool:
        """Check the limits of all columns together; single columns may still be exceeded."""
        return all(needed <= limit for _, needed, limit in self.demands(needs))

    def totals(self, inputs: Counts, outputs: Counts) -> Totals:
        """Return the least needs of families with these numbers of flows, whatever their distribution."""
        in_transfers = sum(self.transfers("in", flows) for flows in inputs)
        return sum(inputs), in_transfers, sum(outputs), sum(self.transfers("out", flows) for flows in outputs)


class Share(Frozen):
    """`flows` flows of a family that share one transfer in a column."""

    family: int
    direction: str
    column: int
    flows: int


@lru_cache(maxsize=4096)
def assign_columns(inputs: Counts, outputs: Counts, limits: ColumnLimits) -> tuple[Share, ...] | None:
    """Distribute families of `inputs[i]` and `outputs[i]` flows over the columns; None when none keeps the limits.

    Input flows get a shim channel each while there are enough; output flows of a family are joined per column. The load
    is balanced; only where balancing fails, all distributions of counts are searched.
    """
    return _balanced(inputs, outputs, limits) or _searched(inputs, outputs, limits)


@dataclass
class _Column:
    number: int
    shim_in: int
    shim_out: int
    memory_in: int
    memory_out: int
    joins: int


def _balanced(inputs: Counts, outputs: Counts, limits: ColumnLimits) -> tuple[Share, ...] | None:
    columns = [
        _Column(c, limits.shim_in, limits.shim_out, limits.memory_in, limits.memory_out, limits.joins)
        for c in range(limits.columns)
    ]
    transfers = _transfer_sizes(inputs, limits.columns * limits.shim_out)
    if transfers is None:
        return None
    shares: list[Share] = []
    for family, sizes in enumerate(transfers):
        for size in sizes:
            fits = [c for c in columns if c.shim_out and c.memory_in and c.memory_out >= size]
            if not fits:
                return None
            column = max(fits, key=lambda c: (c.shim_out, c.memory_out, -c.number))
            column.shim_out -= 1
            column.memory_in -= 1
            column.memory_out -= size
            shares.append(Share(family, "in", column.number, size))
    joined = _balanced_outputs(outputs, columns)
    return None if joined is None else (*shares, *joined)


def _balanced_outputs(outputs: Counts, columns: list[_Column]) -> list[Share] | None:
    shares = []
    for family, count in enumerate(outputs):
        taken: dict[int, int] = {}
        for _ in range(count):
            able = [c for c in columns if c.memory_in and c.joins]
            fits = [c for c in able if c.number in taken or (c.shim_in and c.memory_out)]
            if not fits:
                return None
            column = max(fits, key=lambda c: (c.memory_in, c.number in taken, -c.number))
            if column.number not in taken:
                column.shim_in -= 1
                column.memory_out -= 1
            column.memory_in -= 1
            column.joins -= 1
            taken[column.number] = taken.get(column.number, 0) + 1
        shares += [Share(family, "out", column, flows) for column, flows in sorted(taken.items())]
    return shares


def _transfer_sizes(inputs: Counts, channels: int) -> list[list[int]] | None:
    """Return the flows of each transfer of each family, for at most `channels` transfers; None if impossible."""
    transfers = list(inputs)
    while sum(transfers) > channels:
        # The family with the most transfers can do with one less at the least cost: its flows stay the most even.
        largest = max(range(len(transfers)), key=lambda f: transfers[f])
        if transfers[largest] == 1:
            return None
        transfers[largest] -= 1
    result = []
    for flows, most in zip(inputs, transfers, strict=True):
        size = -(-flows // most)
        result.append([size] * (flows // size) + ([flows % size] if flows % size else []))
    return result


def _searched(inputs: Counts, outputs: Counts, limits: ColumnLimits) -> tuple[Share, ...] | None:
    """Column by column all ways to take on flows, each family in at most one transfer per column."""
    visited: set[tuple[int, Counts]] = set()
    split = len(inputs)
    trials = 0

    def search(column: int, left: Counts) -> list[Share] | None:
        nonlocal trials
        if not any(left):
            return []
        state = (column, left)
        columns_left = replace(limits, columns=limits.columns - column)
        if state in visited or not columns_left.fit(limits.totals(left[:split], left[split:])):
            return None
        # The rest at a column decides all that follows: a state that failed once always fails.
        visited.add(state)
        for take in _column_loads(left, split, limits):
            trials += 1
            if trials > _MAX_TRIALS:
                return None
            rest = search(column + 1, tuple(a - b for a, b in zip(left, take, strict=True)))
            if rest is not None:
                own = [Share(f, "in", column, n) for f, n in enumerate(take[:split]) if n]
                own += [Share(f, "out", column, n) for f, n in enumerate(take[split:]) if n]
                return own + rest
        return None

    found = search(0, inputs + outputs)
    return None if found is None else tuple(sorted(found, key=lambda s: (s.direction, s.family, s.column)))


def _column_loads(left: Counts, inputs: int, limits: ColumnLimits) -> Iterator[Counts]:
    """Yield the largest loads that one column can take from the rest: a column never gains from taking less."""
    open_in = [f for f in range(inputs) if left[f]]
    open_out = [f for f in range(inputs, len(left)) if left[f]]
    for ins in range(min(len(open_in), limits.shim_out, limits.memory_in), -1, -1):
        for outs in range(min(len(open_out), limits.shim_in, limits.memory_out), -1, -1):
            for in_families in combinations(open_in, ins):
                for out_families in combinations(open_out, outs):
                    for in_load in _fullest(left, in_families, limits.memory_out - outs):
                        for out_load in _fullest(left, out_families, min(limits.memory_in - ins, limits.joins)):
                            yield tuple(a + b for a, b in zip(in_load, out_load, strict=True))


def _fullest(left: Counts, families: tuple[int, ...], capacity: int) -> Iterator[Counts]:
    """Loads of at least one flow from each of the families that use up the capacity or the families."""
    if len(families) > capacity:
        return
    total = min(capacity, sum(left[f] for f in families))

    def fill(position: int, remaining: int) -> Iterator[tuple[int, ...]]:
        if position == len(families):
            if remaining == 0:
                yield ()
            return
        for n in range(min(left[families[position]], remaining), 0, -1):
            for tail in fill(position + 1, remaining - n):
                yield (n, *tail)

    for amounts in fill(0, total):
        load = [0] * len(left)
        for family, n in zip(families, amounts, strict=True):
            load[family] = n
        yield tuple(load)
