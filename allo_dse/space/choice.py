"""The protocol of choices, and the questions that most choices ask.

A study's space is a sequence of choices. Each takes a `Draft` and returns one in which more is decided; after the last
one the draft is a design. Most choices only ask questions:

    class InputDepth(QuestionChoice):
        writes = frozenset({"buffering.input_depth"})

        def decide(self, draft, ask):
            depth = 1 + int(ask(Question.position("input_depth", (1, 2))))
            return replace(draft, buffering=replace(draft.buffering, input_depth=depth))

        def describe(self):
            return {"input_depths": [1, 2]}

Decoding genes, enumerating, counting and encoding all follow from `decide`; they differ in who answers the questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from allo_dse.common.errors import StudyError

from .genes import Gene, Genes, Suggest

if TYPE_CHECKING:
    from .design import Design, Draft


class Choice(Protocol):
    """A kind of decision about a design.

    Attributes:
        reads: fields of the draft that the options depend on, among those that earlier choices write.
        writes: fields of the draft that it decides; dotted for a part of a field.
    """

    reads: frozenset[str]
    writes: frozenset[str]

    def decode(self, draft: Draft, suggest: Suggest) -> Draft | None:
        """Return the draft decided as the genes want, or None where that is not legal.

        It asks for a gene only if there is a choice. Any value within the range of a gene is a valid answer.
        """
        ...

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        """Yield every way to decide the draft, once, with genes that decode to it; None for an illegal one.

        Options that cannot fit, or that equal another option, may be left out.
        """
        ...

    def count(self, draft: Draft, limit: int) -> int:
        """Return the number of legal options; any number above `limit` if there are more."""
        ...

    def probe(self, draft: Draft, rng: np.random.Generator) -> tuple[Draft | None, int]:
        """Return a random way to decide the draft, None for an illegal one, and the number of ways it stands for."""
        ...

    def encode(self, draft: Draft, design: Design) -> Genes:
        """Return genes that decide the draft as the design is decided.

        Raises:
            StudyError: when the design is none of the options.
        """
        ...

    def describe(self) -> dict[str, object]:
        """Return everything that decides the meaning of the genes, under unique names, as JSON data."""
        ...


Answer = int | str


@dataclass(frozen=True)
class Question:
    """A selection of one of several legal values.

    Attributes:
        name: the gene's name, the same for all programs of a study.
        values: numbers in ascending order, or words.
        gene: its range. A gene holds a number itself, or the position of a word in `words`.
    """

    name: str
    values: Sequence[Answer]
    gene: Gene
    words: tuple[str, ...] = ()

    @staticmethod
    def number(name: str, values: Sequence[int], limit: int, least: int = 1) -> Question:
        """Ask for a number from `least` to `limit`, where ratios count unless `least` is 0."""
        return Question(name, tuple(sorted(values)), Gene(least, max(least + 1, limit), "log" if least else "ordinal"))

    @staticmethod
    def word(name: str, values: Sequence[str], words: Sequence[str]) -> Question:
        """Ask for one of some words; only `values` are legal."""
        listed = tuple(words)
        return Question(name, tuple(values), Gene(0, max(1, len(listed) - 1), "categorical", listed), listed)

    @staticmethod
    def position(name: str, elements: Sequence[object] | int, *, ordered: bool = False) -> Question:
        """Ask for the position of an element in a sequence, or below a number; `ordered` if neighbours are similar."""
        labels = () if isinstance(elements, int) else tuple(elements)
        size = elements if isinstance(elements, int) else len(labels)
        gene = Gene.ordered(0, size - 1, labels) if ordered else Gene(0, size - 1, "categorical", labels)
        return Question(name, range(size), gene)

    def nearest(self, wanted: int) -> Answer:
        """Return the legal value that comes closest to the gene."""
        if self.words:
            word = self.words[min(max(wanted, 0), len(self.words) - 1)]
            return word if word in self.values else self.values[0]
        if wanted in self.values:
            return wanted
        numbers = [int(v) for v in self.values]
        return min(numbers, key=lambda n: (max(n + 1, wanted + 1) / min(n + 1, wanted + 1), n))

    def wanted(self, value: Answer) -> int:
        """Return the gene for a value; the inverse of `nearest`."""
        return self.words.index(str(value)) if self.words else int(value)


Ask = Callable[[Question], Answer]


T = TypeVar("T")


def every_way(decide: Callable[[Ask], T]) -> Iterator[tuple[T, list[tuple[Question, Answer]]]]:
    """Yield the decision for each sequence of answers, with the questions that had several values.

    The last answer varies fastest.
    """
    path: list[int] = []  # position of the value that answers each question
    while True:
        asked: list[Question] = []

        def answer(question: Question, asked: list[Question] = asked) -> Answer:
            asked.append(question)
            if len(path) < len(asked):
                path.append(0)
            return question.values[path[len(asked) - 1]]

        decided = decide(answer)
        yield decided, [(q, q.values[p]) for q, p in zip(asked, path, strict=True) if len(q.values) > 1]
        while path and path[-1] + 1 == len(asked[len(path) - 1].values):
            path.pop()
        if not path:
            return
        path[-1] += 1


class QuestionChoice(ABC):
    """A choice made by asking questions; later ones may depend on earlier answers.

    `decide` must depend on the draft and the answers alone, and use every answer: enumeration tries all of them.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str]

    @abstractmethod
    def decide(self, draft: Draft, ask: Ask) -> Draft | None:
        """Return the draft that the answers make, or None if they are not legal together."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return everything that decides the meaning of the genes, under unique names."""

    def decode(self, draft: Draft, suggest: Suggest) -> Draft | None:
        def answer(question: Question) -> Answer:
            if len(question.values) == 1:
                return question.values[0]
            return question.nearest(suggest(question.name, question.gene))

        return self.decide(draft, answer)

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        for decided, answered in every_way(lambda ask: self.decide(draft, ask)):
            yield decided, {question.name: question.wanted(answer) for question, answer in answered}

    def count(self, draft: Draft, limit: int) -> int:
        total = 0
        for option, _ in self.options(draft):
            total += option is not None
            if total > limit:
                break
        return total

    def probe(self, draft: Draft, rng: np.random.Generator) -> tuple[Draft | None, int]:
        ways = 1

        def answer(question: Question) -> Answer:
            nonlocal ways
            ways *= len(question.values)
            return question.values[int(rng.integers(len(question.values)))]

        return self._probed(draft, answer), ways

    def _probed(self, draft: Draft, ask: Ask) -> Draft | None:
        return self.decide(draft, ask)

    def encode(self, draft: Draft, design: Design) -> Genes:
        """Search all options; choices with many options override this."""
        written = attrgetter(*sorted(self.writes))
        for option, genes in self.options(draft):
            if option is not None and written(option) == written(design):
                return genes
        raise StudyError(f"the design's {', '.join(sorted(self.writes))} is none of those the study chooses from")
