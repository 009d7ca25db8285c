"""to: a check that elements leave an array in the order in which they enter, so that it can be a FIFO."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from allo_dse.common.errors import ProgramError

from ..ir.affine import Linear, everywhere, forms_of
from ..ir.nest import Branch, Loop, Node, accesses_of
from ..program.tensors import IntArray

MOST_ELEMENTS = 1 << 23  # a frame of 3840 x 2160 pixels
_NONE = -1


def check_fifo(nodes: Sequence[Node], array: str, shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Return whether an array can be a FIFO, or one FIFO for each index of some of its dimensions.

    Returns:
        False where that is not known.

    Raises:
        ProgramError: if it is known that it cannot.
    """
    written, read = (accesses(nodes, array, shape, write=write) for write in (True, False))
    if written is None or read is None:
        return False
    entering, leaving = (_by_fifo(found, shape, dims) for found in (written, read))
    if np.array_equal(entering, leaving):
        return True
    if len(entering) != len(leaving):
        raise ProgramError(
            f"`{array}` cannot be a FIFO: {len(entering):,} elements are written and {len(leaving):,} read",
            hint="every element that enters a FIFO leaves it once",
        )
    place = int(np.argmax(entering != leaving))
    one, other = (_text(array, int(found[place]), shape) for found in (entering, leaving))
    raise ProgramError(
        f"`{array}` cannot be a FIFO: {other} is read where {one} comes out",
        hint="a FIFO is read in the order of its writes; reorder the loops of one of the nests",
    )


def _by_fifo(elements: IntArray, shape: Sequence[int], dims: Sequence[int]) -> IntArray:
    """Elements in their order, FIFO by FIFO."""
    if not dims:
        return elements
    indices = np.unravel_index(elements, shape)
    fifo = np.ravel_multi_index([indices[dim] for dim in dims], [shape[dim] for dim in dims])
    return elements[np.argsort(fifo, kind="stable")]


def _text(array: str, element: int, shape: Sequence[int]) -> str:
    return f"{array}[{', '.join(str(int(i)) for i in np.unravel_index(element, shape))}]"


def constant_dims(loops: Iterable[Loop], array: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions in which only numbers are indices of an array in some loops: those of copies that hand it on."""
    used = [access.index for access, _ in accesses_of(loops, array)]
    fixed = (all(form is not None and form.is_constant for form in column) for column in zip(*used, strict=True))
    return tuple(dim for dim, (_, one) in enumerate(zip(shape, fixed, strict=False)) if one)


def touches(node: Node, array: str, *, write: bool | None = None) -> bool:
    """Return whether a statement accesses an array; `write` restricts this to writes, or to reads."""
    return any(write in (None, access.write) for access, _ in accesses_of([node], array))


def accesses(nodes: Sequence[Node], array: str, shape: Sequence[int], *, write: bool | None) -> IntArray | None:
    """The elements of an array that are written (or read), by number, in the order of time.

    Where `write` is None, both are, and the numbers of those that are read follow the numbers of all elements.

    Returns:
        None where data decides on them, where loops have bounds that vary, and where they are too many.
    """
    found = _elements(nodes, array, shape, {}, 1, write)
    return None if found is None else found[found != _NONE]


def _elements(
    nodes: Sequence[Node],
    array: str,
    shape: Sequence[int],
    where: Mapping[int, IntArray],
    rounds: int,
    write: bool | None,
) -> IntArray | None:
    """The elements per round, shape (rounds, accesses of a round); `where` has the variables of each round.

    A round that does not come to an access has `_NONE` there.
    """
    columns = [np.zeros((rounds, 0), np.int64)]
    for node in nodes:
        if not touches(node, array, write=write):
            continue
        if isinstance(node, Branch):
            if node.test is None or not {v for form in forms_of(node.test) for v in form.variables} <= where.keys():
                return None
            taken = np.broadcast_to(everywhere(node.test, where), rounds)
            for side, skipped in zip(node.sides, (~taken, taken), strict=True):
                found = _elements(side, array, shape, where, rounds, write)
                if found is None:
                    return None
                found[skipped] = _NONE
                columns.append(found)
        elif isinstance(node, Loop):
            trips = node.trips
            if trips is None or not trips.is_constant or rounds * trips.constant > MOST_ELEMENTS:
                return None
            count = trips.constant
            first = _value(node.lower, where, rounds)
            if first is None:
                return None
            inside = {variable: np.repeat(values, count) for variable, values in where.items()}
            inside[node.variable] = np.repeat(first, count) + np.tile(np.arange(count) * node.step, rounds)
            found = _elements(node.body, array, shape, inside, rounds * count, write)
            if found is None:
                return None
            columns.append(found.reshape(rounds, -1))
        elif node.access is not None:
            indices = [_value(form, where, rounds) for form in node.access.index]
            known = [index for index in indices if index is not None]
            if len(known) < len(indices):
                return None
            number = np.zeros(rounds, np.int64)
            for extent, index in zip(shape, known, strict=True):
                number = number * extent + index
            if write is None and not node.access.write:
                number += math.prod(shape)
            columns.append(number[:, None])
    return np.concatenate(columns, axis=1)


def _value(form: Linear | None, where: Mapping[int, IntArray], rounds: int) -> IntArray | None:
    """A form in each round; None where it depends on data."""
    if form is None or not form.variables <= where.keys():
        return None
    values: Any = form.value(where)  # type: ignore[arg-type]  # arrays of values as well as values
    return np.broadcast_to(np.asarray(values, np.int64), rounds)
