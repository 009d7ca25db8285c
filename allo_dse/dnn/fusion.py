"""Which neighbours of a network one program can do, so that what passes between them never goes to DRAM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .network import Network, Step
from .operators.fused import fused_work
from .operators.work import Work


@dataclass(frozen=True)
class Operator:
    """What a design is made for: a step of the network, or several as one.

    Attributes:
        step: reads what comes from outside and writes what the last step does. names: of the network's steps.
        copy: of the hardware that does operators which are alike, for those that may have more than one.
    """

    step: Step
    work: Work
    names: tuple[str, ...]
    copy: int = 0


def single_operators(network: Network) -> tuple[Operator, ...]:
    """Every step that a program does, by itself."""
    return tuple(Operator(step, work, (step.name,)) for step, work in network.worked)


def fused_operators(network: Network) -> Iterator[Operator]:
    """Steps with those after them that read nothing but their result from the network, and are all that reads it."""
    readers: dict[str, list[Step]] = {}
    for step in network.steps:
        for name in step.inputs:
            readers.setdefault(name, []).append(step)
    for one in single_operators(network):
        found: Operator | None = one
        while found is not None and found.step.output not in network.outputs:
            found = _with_next(found, readers.get(found.step.output, []))
            if found is not None:
                yield found


def _with_next(one: Operator, readers: list[Step]) -> Operator | None:
    """An operator together with the only step that reads its result; None where there is no program for both."""
    if len(readers) != 1 or one.work.reference is None:
        return None
    (after,) = readers
    if after.inputs.count(one.step.output) > 1:
        return None
    position = after.inputs.index(one.step.output)
    work = fused_work(one.work, after.work, position) if isinstance(after.work, Work) else None
    if work is None:
        return None
    others = tuple(name for at, name in enumerate(after.inputs) if at != position)
    names = (*one.names, after.name)
    return Operator(Step("+".join(names), work, (*one.step.inputs, *others), after.output), work, names)
