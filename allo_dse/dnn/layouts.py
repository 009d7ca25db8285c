"""Rearrangements that follow each other become one, those that change nothing become free, and what nobody reads goes.

before:  projection ─► [L, H, D] ─► [H, L, D] ─► [L, H * D] ─► attention       after:  projection ─► attention
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace

from .network import Arrange, Network, Shape, Step

Array = NDArray[np.generic]
Function = Callable[..., Array]


def simplified(network: Network) -> Network:
    """The same network with the fewest and cheapest rearrangements."""
    made = {step.output: step for step in network.steps}
    steps = []
    for step in network.steps:
        if isinstance(step.work, Arrange):
            made[step.output] = _on_sources(step, made, network.shapes)
        free = isinstance(step.work, Arrange) and step.work.free  # of a tensor that others may read, too
        steps.append(step if free else made[step.output])
    return _without_unread(replace(network, steps=steps))


def _on_sources(step: Step, made: dict[str, Step], shapes: dict[str, Shape]) -> Step:
    """A rearrangement of what other steps than rearrangements write; those of its inputs are such already."""
    assert isinstance(step.work, Arrange)
    parts: list[tuple[Function, int, Shape]] = []
    sources: list[str] = []
    for name in step.inputs:
        before = made.get(name)
        inner = before is not None and isinstance(before.work, Arrange)
        function = before.work.function if before is not None and isinstance(before.work, Arrange) else _same
        own = before.inputs if before is not None and inner else (name,)
        parts.append((function, len(own), shapes[name]))
        sources += own
    function = _composed(step.work.function, parts)
    return replace(
        step, work=Arrange(function, is_free(function, [shapes[one] for one in sources])), inputs=tuple(sources)
    )


def _same(array: Array) -> Array:
    return array


def _composed(outer: Function, parts: Sequence[tuple[Function, int, Shape]]) -> Function:
    """`outer` of what each part makes of its own share of the arrays, in its tensor's shape."""

    def function(*arrays: Array) -> Array:
        rest, made = list(arrays), []
        for part, count, shape in parts:
            made.append(part(*rest[:count]).reshape(shape))
            rest = rest[count:]
        return outer(*made)

    return function


def is_free(function: Function, shapes: Sequence[Shape]) -> bool:
    """Whether a rearrangement leaves every element of its one source where it is: tried on their numbers."""
    if len(shapes) != 1:
        return False
    numbers = np.arange(math.prod(shapes[0]), dtype=np.int32)
    return np.array_equal(function(numbers.reshape(shapes[0])).ravel(), numbers)


def order_of(work: Arrange, shapes: Sequence[Shape], name: str) -> NDArray[np.int32]:
    """Where the elements of a rearrangement come from: from 1 among those of its inputs, 0 where it is zero.

    Args:
        name: of its step.

    Raises:
        StudyError: where it computes something.
    """
    parts: list[NDArray[np.int32]] = []
    first = 1
    for shape in shapes:
        parts.append(np.arange(first, first + math.prod(shape), dtype=np.int32).reshape(shape))
        first += math.prod(shape)
    order: NDArray[np.int32] = np.asarray(work.function(*parts), np.int32)
    if not np.array_equal(work.function(*(np.negative(part) for part in parts)), np.negative(order)):
        raise StudyError(f"step {name!r} is no rearrangement: it computes", hint="give it as a dse.dnn Host step")
    return order.ravel()


def _without_unread(network: Network) -> Network:
    """The network without steps and constants whose tensors nobody reads."""
    wanted, kept = set(network.outputs), []
    for step in reversed(network.steps):
        if step.output in wanted:
            kept.append(step)
            wanted.update(step.inputs)
    shapes = {name: shape for name, shape in network.shapes.items() if name in wanted or name in network.inputs}
    constants = {name: array for name, array in network.constants.items() if name in wanted}
    return replace(network, steps=kept[::-1], shapes=shapes, constants=constants)
