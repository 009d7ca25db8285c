"""Banks that let all copies of a loop body access an array in the same cycle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from typing import TypeAlias

from msgspec import Struct

from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Branch, Loop, Node, Op, read_nest
from allo_dse.compiler.program.compiled import REGION, Kernel

from ..cost.memory import Unrolled, addresses_of, split

Copies: TypeAlias = Mapping[str, int]
"""Copies of the bodies of a kernel's pipelined loops, by the loop's name; loops inside are unrolled completely."""
Array: TypeAlias = tuple[str, str]
"""Scope and name: the kernel for its own arrays, the region for tensors."""
_SPARSE = 4  # banks per access beyond which a cyclic split costs more than it serves


class Spread(Struct, frozen=True):
    """Indices of an access in one round of its pipelined loop.

    Attributes:
        pipelined: the variable of that loop.
        dims: per dimension the part of the index that all copies share, and the indices of the copies beside it; None
            where data decides.
    """

    pipelined: int
    dims: tuple[tuple[Linear, frozenset[int]] | None, ...]


class Use(Struct, frozen=True, eq=False, dict=True):
    """An access to an array, with the loops around it, outermost first, and their names."""

    array: Array
    shape: tuple[int, ...]
    index: tuple[Linear | None, ...]
    loops: tuple[tuple[Loop, str], ...]

    def spread(self, copies: Copies) -> Spread | None:
        """Return its indices in a round, for copies of the pipelined loop; None if no loop around it is pipelined."""
        found = next((at for at, (_, name) in enumerate(self._counted) if name in copies), None)
        if found is None:
            return None
        key = found, copies[self._counted[found][1]]
        if key not in self._known:
            self._known[key] = self._spread(*key)
        return self._known[key]

    @cached_property
    def _counted(self) -> list[tuple[Loop, str]]:
        """The loops with constant trips."""
        return [(loop, name) for loop, name in self.loops if loop.trips and loop.trips.is_constant and loop.lower]

    @cached_property
    def _known(self) -> dict[tuple[int, int], Spread]:
        return {}

    def _spread(self, pipelined: int, factor: int) -> Spread:
        index, unrolled = self.index, dict[int, range]()
        for loop, _ in self._counted[pipelined + 1 :]:
            assert loop.trips is not None
            assert loop.lower is not None
            first = loop.lower.value({})
            if first is not None:
                unrolled[loop.variable] = range(first, first + loop.trips.constant * loop.step, loop.step)
        outer, _ = self._counted[pipelined]
        if factor > 1:  # the variable counts rounds, another one the copies
            inner = -1 - outer.variable
            unrolled[inner] = range(factor)
            form = Linear(((inner, outer.step), (outer.variable, outer.step * factor)))
            index = tuple(part and part.put_in(outer.variable, form) for part in index)
        return Spread(outer.variable, tuple(_copies_of(form, unrolled) for form in index))


def _copies_of(form: Linear | None, unrolled: Unrolled) -> tuple[Linear, frozenset[int]] | None:
    parts = split(form, unrolled)
    return None if parts is None else (parts[1], frozenset(addresses_of([parts[0]], unrolled)[:, 0].tolist()))


def uses_of(kernel: Kernel) -> tuple[tuple[Use, ...], ...]:
    """Return the accesses to elements of named arrays, by class."""
    found = []
    for task_class in kernel.classes:
        nest, names = read_nest(task_class.body.mlir), task_class.loop_names
        tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports}
        places = {
            name: (kernel.name, name) if own.argument is None else (REGION, tensors.get(own.argument, name))
            for name, own in nest.arrays.items()
        }
        found.append(
            tuple(
                Use(places[op.access.array], nest.arrays[op.access.array].shape, op.access.index, loops)
                for op, loops in _accesses(nest.body, names, ())
                if op.access is not None and op.access.index and not op.block and "." not in op.access.array
            )
        )
    return tuple(found)


def _accesses(
    nodes: Iterable[Node], names: Sequence[str], loops: tuple[tuple[Loop, str], ...]
) -> Iterator[tuple[Op, tuple[tuple[Loop, str], ...]]]:
    for node in nodes:
        if isinstance(node, Loop):
            name = names[node.source] if node.source is not None else ""
            yield from _accesses(node.body, names, (*loops, (node, name)))
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _accesses(side, names, loops)
        else:
            yield node, loops


def needed_banks(uses: Iterable[Use], copies: Copies) -> dict[Array, dict[int, int]]:
    """Per array, the banks per dimension (1-based) that spread the accesses of a round.

    As many banks as elements where rounds always use the same elements: a window, or a line buffer's lines.
    """
    rounds: dict[tuple[Array, int, int], dict[int, dict[Linear, set[int]]]] = {}
    for use in uses:
        spread = use.spread(copies)
        if spread is None:
            continue
        for dim, part in enumerate(spread.dims):
            if part is not None:
                alike = rounds.setdefault((use.array, dim, use.shape[dim]), {}).setdefault(spread.pipelined, {})
                alike.setdefault(part[0], set()).update(part[1])
    needed: dict[Array, dict[int, int]] = {}
    for (array, dim, extent), by_loop in rounds.items():
        factor = _banks(extent, [list(alike.items()) for alike in by_loop.values()])
        if factor > 1:
            needed.setdefault(array, {})[dim + 1] = factor
    return needed


def _banks(extent: int, rounds: Sequence[Sequence[tuple[Linear, Set[int]]]]) -> int:
    """Return the banks along a dimension for the indices of each pipelined loop's rounds, by what rounds share."""
    several = [alike for alike in rounds if max(len(indices) for _, indices in alike) > 1]
    if not several:
        return 1
    fixed = [
        set().union(*(indices for _, indices in alike)) for alike in several if all(f.is_constant for f, _ in alike)
    ]
    if any(len(indices) * 2 >= extent for indices in fixed):
        return extent
    return _least_factor(extent, tuple(frozenset(indices) for alike in several for _, indices in alike))


@lru_cache(maxsize=1 << 12)
def _least_factor(extent: int, rounds: tuple[frozenset[int], ...]) -> int:
    """Return the least divisor of an extent for which no two indices of a round have the same remainder.

    Where that takes many more banks than there are indices, as many as divide both numbers.
    """
    most = max(map(len, rounds))
    for factor in range(most, min(extent, _SPARSE * most) + 1):
        if extent % factor == 0 and all(len({i % factor for i in indices}) == len(indices) for indices in rounds):
            return factor
    return math.gcd(most, extent)
