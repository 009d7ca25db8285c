"""Banks that let all copies of a loop body access an array in the same cycle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Branch, Loop, Node, Op, read_nest
from allo_dse.compiler.program.kernel import Kernel
from allo_dse.compiler.program.shared_tensors import REGION

from ..cost.memory import Unrolled, addresses_of, split

Copies: TypeAlias = Mapping[str, int]
"""Copies of the bodies of a kernel's pipelined loops, by the loop's name; loops inside are unrolled completely."""
Array: TypeAlias = tuple[str, str]
"""Scope and name: the kernel for its own arrays, the region for tensors."""
_SPARSE = 4  # banks per access beyond which a cyclic split costs more than it serves


class Use(Struct, frozen=True):
    """An access to an array, with the loops around it, outermost first, and their names."""

    array: Array
    shape: tuple[int, ...]
    index: tuple[Linear | None, ...]
    loops: tuple[tuple[Loop, str], ...]

    def in_round(self, copies: Copies) -> tuple[int, tuple[Linear | None, ...], Unrolled] | None:
        """Return the pipelined loop around it, its index there, and the values of the unrolled loops' variables."""
        pipelined: int | None = None
        index, unrolled = self.index, dict[int, range]()
        for loop, name in self.loops:
            if loop.trips is None or not loop.trips.is_constant or loop.lower is None:
                continue
            trips, first = loop.trips.constant, loop.lower.value({})
            if pipelined is not None and first is not None:
                unrolled[loop.variable] = range(first, first + trips * loop.step, loop.step)
            elif name in copies:
                pipelined, factor = loop.variable, copies[name]
                if factor > 1:  # the variable counts rounds, another one the copies
                    inner = -1 - loop.variable
                    unrolled[inner] = range(factor)
                    form = Linear(((inner, loop.step), (loop.variable, loop.step * factor)))
                    index = tuple(part and part.put_in(loop.variable, form) for part in index)
        return None if pipelined is None else (pipelined, index, unrolled)


def uses_of(kernel: Kernel) -> tuple[tuple[Use, ...], ...]:
    """Return the accesses to elements of named arrays, by class."""
    found = []
    for task_class in kernel.classes:
        nest, names = read_nest(task_class.body.mlir), task_class.loop_names
        tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports}

        def array(name: str, nest: object = nest, tensors: Mapping[int, str] = tensors) -> Array:
            own = nest.arrays[name]  # type: ignore[attr-defined]
            return (kernel.name, name) if own.argument is None else (REGION, tensors.get(own.argument, name))

        found.append(
            tuple(
                Use(array(op.access.array), nest.arrays[op.access.array].shape, op.access.index, loops)
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
        found = use.in_round(copies)
        if found is None:
            continue
        pipelined, index, unrolled = found
        for dim, form in enumerate(index):
            parts = split(form, unrolled)
            if parts is not None:
                values = addresses_of([parts[0]], unrolled)[:, 0]
                alike = rounds.setdefault((use.array, dim, use.shape[dim]), {}).setdefault(pipelined, {})
                alike.setdefault(parts[1], set()).update(np.unique(values).tolist())
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
