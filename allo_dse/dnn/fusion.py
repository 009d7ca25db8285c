"""Which neighbours of a network one program can do, so that what passes between them never goes to DRAM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.lang.types import DType

from .network import Arrange, Network, Step
from .operators.execute import interface, loaded
from .operators.fused import fused_work
from .operators.work import Work


class Operator(Struct, frozen=True):
    """What a design is made for: a step of the network, or several as one.

    Attributes:
        step: reads what comes from outside and writes what the last step does. names: of the network's steps.
        key: of its work, which operators that are alike share.
        copy: of the hardware that does these, where they may have more than one.
        walk: in which it reads what lies in another order, where there is such.
    """

    step: Step
    work: Work
    names: tuple[str, ...]
    key: str = ""
    copy: int = 0
    walk: str = ""

    @property
    def first(self) -> bool:
        """Whether none before it does the same on other hardware, or by reading in another order."""
        return not self.copy and not self.walk

    @property
    def reads(self) -> tuple[DType, ...]:
        """The element types of what it reads."""
        return tuple(tensor.dtype for tensor in interface(loaded(self.work))[0])

    @property
    def writes(self) -> DType:
        return interface(loaded(self.work))[1][0].dtype


def single_operators(network: Network) -> tuple[Operator, ...]:
    """Every step that a program does, by itself: by each program and in each element type that may do it."""
    return tuple(
        Operator(replace(step, work=work, others=()), work, (step.name,))
        for step in network.steps
        for work in step.works
    )


def fused_operators(network: Network) -> Iterator[Operator]:
    """Steps with those after them that read nothing but their result from the network, and are all that reads it."""
    readers: dict[str, list[Step]] = {}
    for step in network.steps:
        for name in step.inputs:
            readers.setdefault(name, []).append(step)
    waiting = list(single_operators(network))[::-1]
    while waiting:
        one = waiting.pop()
        if one.step.output not in network.outputs:
            found = list(_with_next(one, *_readers(network, readers, one.step.output)))
            waiting += found
            yield from found


def _readers(network: Network, readers: Mapping[str, list[Step]], name: str) -> tuple[list[Step], str]:
    """What reads a tensor, and what the tensor is called there: what gives it another shape alone is none of them."""
    found = readers.get(name, [])
    if len(found) == 1 and isinstance(found[0].work, Arrange) and found[0].work.free:
        (step,) = found
        if len(step.inputs) == 1 and step.output not in network.outputs:
            return _readers(network, readers, step.output)
    return found, name


def _with_next(one: Operator, readers: list[Step], result: str) -> Iterator[Operator]:
    """An operator together with the only step that reads its result, where there are programs for both."""
    if len(readers) != 1 or one.work.reference is None or readers[0].inputs.count(result) > 1:
        return
    (after,) = readers
    position = after.inputs.index(result)
    others = tuple(name for at, name in enumerate(after.inputs) if at != position)
    names = (*one.names, after.name)
    for following in after.works:
        work = fused_work(one.work, following, position)
        if work is not None:
            yield Operator(Step("+".join(names), work, (*one.step.inputs, *others), after.output), work, names)
