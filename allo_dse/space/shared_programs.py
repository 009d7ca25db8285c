"""Compiled programs that workers share, so that each is compiled once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .choices.parameters import Meaning, ParameterChoice, Positions
from .genes import Genes
from .space import Space

MOST_BYTES = 256 << 20  # of packed programs kept for sending; workers compile the rest themselves


def parameters_of(space: Space) -> ParameterChoice | None:
    """Return the choice of parameters of a space, if any."""
    return next((choice for choice in space.choices if isinstance(choice, ParameterChoice)), None)


def meanings(space: Space) -> list[Meaning]:
    """Return the programs found in this process since the last call."""
    choice = parameters_of(space)
    return [] if choice is None else choice.meanings()


def learn(space: Space, found: Iterable[Meaning]) -> None:
    """Take over programs found by other processes."""
    choice = parameters_of(space)
    if choice is not None:
        choice.learn(found)


class SharedPrograms:
    """The programs that this process has compiled, and those that each worker has.

    Args:
        space: the space of this process, whose programs are sent to the workers.
    """

    def __init__(self, space: Space) -> None:
        self._space, self._choice = space, parameters_of(space)
        self._meanings: dict[Positions, Meaning] = {}
        self._bytes = 0
        self._sent: dict[object, set[Positions]] = defaultdict(set)

    def needed(self, worker: object, designs: Iterable[Genes]) -> list[Meaning]:
        """Return the programs of designs that a worker has not been sent yet."""
        if self._choice is None:
            return []
        for meaning in meanings(self._space):
            if self._bytes + len(meaning.program) <= MOST_BYTES:
                self._meanings[meaning.wanted] = meaning
                self._bytes += len(meaning.program)
        found, sent = [], self._sent[worker]
        for genes in designs:
            wanted = self._choice.wanted(genes)
            if wanted in self._meanings and wanted not in sent:
                sent.add(wanted)
                found.append(self._meanings[wanted])
        return found

    def forget(self, worker: object) -> None:
        """Note that another process has taken a worker's place."""
        self._sent.pop(worker, None)
