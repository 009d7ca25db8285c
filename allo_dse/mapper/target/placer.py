"""Which core Allo gives each node: nodes that exchange tokens lie side by side, in columns that turn at their ends.

Connected nodes are strung together, the pairs with most FIFOs first, at the ends of what is strung already; a node in
the middle of a string takes part no more. A string whose two ends are connected is strung to itself, and then its nodes
take several cores each. Strings are laid out from the first free core up and down the columns to the right; those that
run out of columns are not placed. Nodes by themselves take any core that is left.

Source: `CodeGenerator.map_core_func_to_physical_tiles` in `allo.backend.aie.mlir_codegen` and `string_sort_key` in
`allo.backend.aie.utils`, commit a098603. Written anew from what they do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

ROWS = 4
"""Rows of compute tiles in all of Allo's arrays: `device_config_map`."""

Core = tuple[int, int]
"""Column and row of a compute tile, counted among compute tiles."""


class NotPlaced(Exception):
    """A node that Allo finds no core for."""

    def __init__(self, node: int) -> None:
        self.node = node


class PlacedNode(Struct, frozen=True):
    """What the placer knows about a node.

    Attributes:
        name: as Allo composes it.
        column: of the memory tile with which it has most transfers.
    """

    name: str
    column: int


@dataclass
class _Cores:
    """The cores of an array, and which of them are taken."""

    columns: int
    of: dict[int, Core] = field(default_factory=dict)
    taken: set[Core] = field(default_factory=set)

    def take(self, node: int, core: Core) -> None:
        if core[0] >= self.columns:
            raise NotPlaced(node)
        self.of[node] = core
        self.taken.add(core)

    def lay(self, nodes: Sequence[int]) -> None:
        """Lay a string of nodes: its first on the first free core, row by row, the others along the columns."""
        free = ((column, row) for row in range(ROWS) for column in range(self.columns))
        head = next((core for core in free if core not in self.taken), None)
        if head is None:
            raise NotPlaced(nodes[0])
        self.take(nodes[0], head)
        (column, row), step = head, 1
        for node in nodes[1:]:
            while (column, row) in self.taken:
                row += step
                if not 0 <= row < ROWS:
                    row, column, step = row - step, column + 1, -step
            self.take(node, (column, row))

    def settle(self, node: int, column: int) -> None:
        """Put a single node into a column, or the next that has a free core."""
        order = [*range(column, self.columns), *range(column)]
        free = ((c, row) for c in order for row in range(ROWS))
        core = next((core for core in free if core not in self.taken), None)
        if core is None:
            raise NotPlaced(node)
        self.take(node, core)


def place_nodes(
    nodes: Mapping[int, PlacedNode], pairs: Sequence[tuple[int, int, int]], columns: int
) -> Mapping[int, Core]:
    """The cores of nodes.

    Args:
        nodes: in the order in which Allo has made them.
        pairs: nodes that exchange tokens, the one made first first, and their FIFOs; in the order of Allo's streams.

    Raises:
        NotPlaced: where Allo gives up.
    """
    ends: dict[int, list[int]] = {node: [node] for node in nodes}
    for one, other, _ in sorted(pairs, key=lambda pair: -pair[2]):
        if one in ends and other in ends:
            joined = _strung(one, other, ends.pop(one), ends.pop(other))
            ends[joined[0]] = ends[joined[-1]] = joined
    cores = _Cores(columns)
    order = sorted(ends, key=lambda node: _sort_key(nodes[node].name))
    strings = list({id(ends[node]): ends[node] for node in order}.values())
    for string in strings:
        if len(string) > 1:
            cores.lay(string)
    for string in strings:
        if len(string) == 1:
            cores.settle(string[0], nodes[string[0]].column)
    return cores.of


def _strung(one: int, other: int, first: list[int], second: list[int]) -> list[int]:
    """Two strings as one, joined at a pair of their ends; a string joined to itself is there twice."""
    if other == second[-1]:
        one, other, first, second = other, one, second, first
    if one == first[0]:
        first.reverse()
    if other == second[-1]:
        second.reverse()
    first.extend(list(second))
    return first


def _sort_key(name: str) -> tuple[int, tuple[int, ...]]:
    numbers = tuple(map(int, re.findall(r"\d+", name)))
    return len(numbers), numbers
