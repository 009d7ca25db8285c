"""Negative controls: results as wrong programs compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Control = Callable[[Array], Array]
InputControl = Callable[[list[Array]], list[Array]]


def _tile_wrong(one: Array) -> Array:
    found = one.copy()
    part = tuple(slice(0, max(1, size // 4)) for size in one.shape)
    found[part] += (np.abs(found.astype(np.float64)).max() / 2 + (found.dtype.kind != "f")).astype(found.dtype)
    return found


CONTROLS: dict[str, Control] = {
    "zeros": np.zeros_like,
    "times 1.1": lambda one: (one * 11) // 10 if one.dtype.kind in "iu" else (one * 1.1).astype(one.dtype),
    "rows swapped": lambda one: one[::-1].copy(),
    "one tile wrong": _tile_wrong,
    "another activation": lambda one: np.where(one > one.max() / 2, one, one * 0).astype(one.dtype),
}


def input_controls(inputs: list[Array]) -> Iterator[tuple[str, InputControl]]:
    """Controls that compute the right function of other inputs.

    The last step along each axis is missing, in turn; inputs of equal shapes and types are exchanged.
    """
    for place, one in enumerate(inputs):
        for axis in range(one.ndim):
            if one.shape[axis] > 1:
                yield f"the last step of axis {axis} of input {place} missing", _without_last(place, axis)
    for a, b in combinations(range(len(inputs)), 2):
        if (inputs[a].shape, inputs[a].dtype) == (inputs[b].shape, inputs[b].dtype):
            yield f"inputs {a} and {b} exchanged", _exchanged(a, b)


def _without_last(place: int, axis: int) -> InputControl:
    def change(given: list[Array]) -> list[Array]:
        found = [one.copy() for one in given]
        np.moveaxis(found[place], axis, 0)[-1] = 0
        return found

    return change


def _exchanged(a: int, b: int) -> InputControl:
    def change(given: list[Array]) -> list[Array]:
        found = list(given)
        found[a], found[b] = given[b], given[a]
        return found

    return change
