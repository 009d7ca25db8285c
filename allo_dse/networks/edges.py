"""Tensors between operators: rearrangements, merged where they follow each other, and streams, which avoid DRAM."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.eval.launches import Stream

from .fronts import Fronts
from .network import Arrange, Network, Shape, Step, arrange
from .operators.execute import Work, interface, loaded
from .solver.problem import TICK_US, Edge

# Simplification of rearrangements: consecutive ones merge, those that change nothing become free, unread ones go.
#
#     before: projection ─► [L, H, D] ─► [H, L, D] ─► [L, H * D] ─► attention
#     after:  projection ─► attention


Array = NDArray[np.generic]
Function = Callable[..., Array]


def simplified(network: Network) -> Network:
    """Return the same network with the fewest and cheapest rearrangements."""
    made = {step.output: step for step in network.steps}
    steps = []
    for step in network.steps:
        if isinstance(step.work, Arrange):
            made[step.output] = _on_sources(step, made, network.shapes)
        free = isinstance(step.work, Arrange) and step.work.free  # others may read its tensor as well
        steps.append(step if free else made[step.output])
    wanted, kept = set(network.outputs), []
    for step in reversed(steps):
        if step.output in wanted:
            kept.append(step)
            wanted.update(step.inputs, *(one.inputs for one in step.others))
    shapes = {name: shape for name, shape in network.shapes.items() if name in wanted or name in network.inputs}
    constants = {name: array for name, array in network.constants.items() if name in wanted}
    return replace(network, steps=kept[::-1], shapes=shapes, constants=constants)


def _on_sources(step: Step, made: dict[str, Step], shapes: dict[str, Shape]) -> Step:
    """Merge a rearrangement with those that write its inputs, which are merged already."""
    assert isinstance(step.work, Arrange)
    parts: list[tuple[Function, int, Shape]] = []
    sources: list[str] = []
    for name in step.inputs:
        match made.get(name):
            case Step(work=Arrange(function=before), inputs=own):
                pass
            case _:
                before, own = np.asarray, (name,)
        parts.append((before, len(own), shapes[name]))
        sources += own
    function = _composed(step.work.function, parts)
    return replace(step, work=arrange(function, [shapes[one] for one in sources]), inputs=tuple(sources))


def _composed(outer: Function, parts: Sequence[tuple[Function, int, Shape]]) -> Function:
    """Compose `outer` with each part on its own share of the arrays, in its tensor's shape."""

    def function(*arrays: Array) -> Array:
        rest, made = list(arrays), []
        for part, count, shape in parts:
            made.append(part(*rest[:count]).reshape(shape))
            rest = rest[count:]
        return outer(*made)

    return function


def order_of(work: Arrange, shapes: Sequence[Shape], name: str) -> NDArray[np.int32]:
    """Return the source position of every element of a rearrangement.

    Positions count from 1 over the elements of all inputs; 0 stands for a zero.

    Args:
        name: of its step.

    Raises:
        StudyError: if it computes something.
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


# Streams between operators: possible pairs, their start lags, and the resources they save.


def edges_of(fronts: Fronts) -> tuple[Edge, ...]:
    """Return the pairs of operators between which a tensor may be a stream.

    No other operator reads the tensor, it is no output of the network, and only free rearrangements lie in between.
    """
    launches = fronts.launches
    if not launches.linked:
        return ()
    moved = defaultdict[str, list[Any]](list)  # of each design, the passages of what it reads, and of what it writes
    for work, points in fronts.points.items():
        for point in points:
            design = point.design.design
            reads, writes = interface(design.program)
            passages = launches.passages(design, point.design.metrics)
            moved[work].append([passages.get(tensor.name) for tensor in (*reads, writes[0])])
    found: list[Edge] = []
    known: dict[tuple[str, str, int], Stream | None] = {}
    written_by: dict[str, list[int]] = {}
    for number, one in enumerate(fronts.candidates):
        written_by.setdefault(one.step.output, []).append(number)
    tensors = written_as(fronts.network)
    for number, target in enumerate(fronts.candidates):
        for position, name in enumerate(target.step.inputs):
            for other in written_by.get(tensors.get(name, ""), []):
                key = fronts.candidates[other].key, target.key, position
                if key not in known:
                    written, read = [own[-1] for own in moved[key[0]]], [own[position] for own in moved[key[1]]]
                    known[key] = launches.stream(written, read, TICK_US)
                if (stream := known[key]) is not None:
                    found.append(Edge(other, number, (0, *stream.saves), stream.lags))
    return tuple(found)


def written_as(network: Network) -> dict[str, str]:
    """Map tensors to the tensor that was written in their place, before any free rearrangements.

    Only tensors with a single reader that are no outputs of the network are included.
    """
    readers = Counter(name for step in network.steps for name in step.inputs)
    found: dict[str, str] = {}
    for step in network.steps:
        if readers[step.output] != 1 or step.output in network.outputs:
            continue
        if not isinstance(step.work, Arrange) or not step.work.free:
            found[step.output] = step.output
        elif step.inputs[0] in found:
            found[step.output] = found[step.inputs[0]]
    return found


def stream_ends(written: Mapping[str, str], source: Step, target: Step) -> tuple[str, str]:
    """Return the names of a tensor in the program that writes it and in the one that reads it.

    Args:
        written: the result of `written_as`.
    """
    assert isinstance(source.work, Work)
    assert isinstance(target.work, Work)
    position = [written.get(name) for name in target.inputs].index(source.output)
    return interface(loaded(source.work))[1][0].name, interface(loaded(target.work))[0][position].name
