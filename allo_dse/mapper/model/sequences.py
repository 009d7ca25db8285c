"""Loop nests hidden in sequences of addresses."""

from __future__ import annotations

import numpy as np

from allo_dse.program.index_maps import IntArray

Nest = tuple[tuple[int, int], ...]


def loop_nest(sequence: IntArray) -> Nest | None:
    """(count, step) of the loops, outermost first, that produce a sequence; None when it is not affine in a loop nest.

    >>> loop_nest(np.array([0, 1, 2, 10, 11, 12]))
    ((2, 10), (3, 1))
    """
    nest: list[tuple[int, int]] = []
    while len(sequence) > 1:
        steps = np.diff(sequence)
        step = int(steps[0])
        changes = np.flatnonzero(steps != step)
        count = int(changes[0]) + 1 if len(changes) else len(sequence)
        if len(sequence) % count or (steps.reshape(-1)[_inside(len(sequence), count)] != step).any():
            return None
        # The innermost loop ends where the step first changes. In a nest all of its runs are as long and step alike,
        # and their first elements are the sequence of the loops around it.
        nest.append((count, step))
        sequence = sequence[::count]
    return tuple(reversed(nest))


def simplest_nest(nest: Nest) -> Nest:
    """The nest that `loop_nest` finds in what a nest produces: equal for nests that produce equal sequences.

    >>> simplest_nest(((2, 10), (2, 2), (1, 7), (2, 1)))
    ((2, 10), (4, 1))
    """
    found: list[tuple[int, int]] = []
    for count, step in reversed(nest):
        if found and step == found[-1][0] * found[-1][1]:
            found[-1] = count * found[-1][0], found[-1][1]
        elif count > 1:
            found.append((count, step))
    return tuple(reversed(found))


def _inside(length: int, count: int) -> IntArray:
    """Positions of the steps that do not cross from one group of `count` elements to the next."""
    position = np.arange(length - 1)
    found: IntArray = position[position % count != count - 1]
    return found


def change_count(sequence: IntArray) -> int:
    """How many elements differ from the one before, the first included."""
    return 1 + int(np.count_nonzero(np.diff(sequence)))


def nest_moves(nest: Nest) -> int:
    """How many tiles a loop nest moves: loops inside the innermost one with a step only repeat a tile."""
    moves = 1
    moving = False
    for count, step in reversed(nest):
        moving = moving or (step != 0 and count > 1)
        if moving:
            moves *= count
    return moves
