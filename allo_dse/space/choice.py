"""The protocol of everything that can be chosen, and the questions that most choices are made of.

A study's space is a sequence of choices. Each takes a `Draft` and returns one in which more is decided; after the last
one the draft is a design. Most choices only ask questions:

    class InputDepth(QuestionChoice):
        writes = frozenset({"buffering.input_depth"})

        def decide(self, draft, ask):
            depth = 1 + int(ask(Question.position("input_depth", 2)))
            return replace(draft, buffering=replace(draft.buffering, input_depth=depth))

        def describe(self):
            return {"input_depths": [1, 2]}

Decoding genes, enumerating, counting and encoding all follow from `decide`: what answers the questions differs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import StudyError

from .design import Design, Draft

# Genes: named integers with a fixed range each, which any sampler can propose, and where their values come from.
#
# Optuna wants one fixed distribution per name, but what is legal depends on what was chosen before: a mesh axis of 32
# has other divisors than one of 48. So a gene says what is *wanted*, in terms that mean the same for every program of
# the study ("8 nodes along m", "the outermost loop is n"), and decoding takes the legal option that comes closest.
# Crossing two designs or changing a tile size then keeps the rest of the mapping as far as it can be kept. Genes that
# want the impossible decode to a neighbour's design; such repeats cost nothing, because designs are told apart by
# their key, not by their genes.


Genes = dict[str, int]
Kind = Literal["ordinal", "log", "fine", "categorical"]
FINE = 64
"""Ranges of more integers than this are searched in steps of all sizes rather than one by one."""
FINE_STEPS = (0.5, 5.0)  # of a fine gene, as negative powers of ten of its range


class Gene(Struct, frozen=True):
    """The range of one gene: the integers from `low` to `high`.

    Attributes:
        kind: "ordinal" (neighbouring numbers mean similar designs), "log" (the same, in ratios), "fine" (neighbours
            mean nearly the same design, as on the grid of a real number) or "categorical".
    """

    low: int
    high: int
    kind: Kind = "ordinal"

    @staticmethod
    def ordered(low: int, high: int) -> Gene:
        """For numbers of which neighbours are alike, the more so the more numbers there are."""
        return Gene(low, high, "fine" if high - low > FINE else "ordinal")

    def draw(self, rng: np.random.Generator) -> int:
        """Any value; of a logarithmic gene each octave is as likely as another."""
        if self.kind == "log":
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return self.clip(round(math.exp(low + (high - low) * rng.random())))  # in half of the time of `uniform`
        return int(rng.integers(self.low, self.high + 1))

    def step(self, value: int, rng: np.random.Generator) -> int:
        """Another value: three times out of four a nearby one for ordered genes, else any."""
        value = self.clip(value)
        if self.kind == "categorical" or rng.random() < 0.25:
            other = self.draw(rng)
            return other if other != value else self.low + (value - self.low + 1) % (self.high - self.low + 1)
        up = bool(rng.integers(2))
        if self.kind == "fine":  # steps of all sizes: which one helps depends on how near the best is
            size = max(1, round((self.high - self.low) * 10.0 ** -rng.uniform(*FINE_STEPS)))
        else:
            size = value if self.kind == "log" else 1  # doubling and halving
        down = size if self.kind == "fine" else (size + 1) // 2
        moved = value + size if up else value - down
        back = -1 if up else 1
        for other in (value + back, value - back):  # beyond the end: a step back, or the only way there is
            moved = moved if self.clip(moved) == moved else other
        return self.clip(moved)

    def clip(self, value: int) -> int:
        """The nearest value of the range."""
        return min(max(value, self.low), self.high)


Suggest = Callable[[str, Gene], int]
"""Gives a value for a gene, by its name and range."""


def suggest_from(genes: Mapping[str, int], otherwise: Suggest | None = None) -> Suggest:
    """Reads genes, and asks `otherwise` for those that are missing."""

    def suggest(name: str, gene: Gene) -> int:
        value = genes.get(name)
        if value is None:
            return gene.low if otherwise is None else otherwise(name, gene)
        return gene.clip(value)

    return suggest


def random_suggest(rng: np.random.Generator) -> Suggest:
    """Draws every gene at random."""
    return lambda name, gene: gene.draw(rng)


class Choice(Protocol):
    """A kind of thing that can be chosen.

    Attributes:
        reads: fields of the draft that the options depend on, of those that earlier choices write.
        writes: fields of the draft that it decides; with a dot where it is a part of one.
    """

    reads: frozenset[str]
    writes: frozenset[str]

    def decode(self, draft: Draft, suggest: Suggest) -> Draft | None:
        """The draft decided as the genes want, or None where that is not legal. It asks for genes only where there is a
        choice; any values within their ranges are answers."""
        ...

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        """Every way to decide the draft, once, with genes that decode to it; None for one that turns out illegal.

        What cannot fit, or is alike to another option, may be left out.
        """
        ...

    def count(self, draft: Draft, limit: int) -> int:
        """How many legal options there are; any number above `limit` if there are more."""
        ...

    def encode(self, draft: Draft, design: Design) -> Genes:
        """Genes that decide the draft as the design is decided.

        Raises:
            StudyError: when it is none of the options.
        """
        ...

    def describe(self) -> dict[str, object]:
        """What decides the meaning of the genes, under names of its own, as JSON takes it."""
        ...


Answer = int | str


@dataclass(frozen=True)
class Question:
    """One of some legal values.

    Attributes:
        name: of its gene, the same for all programs of a study.
        values: numbers in ascending order, or words.
        gene: its range. Numbers are wanted as such; of words the position in `words`.
    """

    name: str
    values: Sequence[Answer]
    gene: Gene
    words: tuple[str, ...] = ()

    @staticmethod
    def number(name: str, values: Sequence[int], limit: int, least: int = 1) -> Question:
        """For a number from `least` to `limit`, where ratios count unless `least` is 0."""
        return Question(name, tuple(sorted(values)), Gene(least, max(least + 1, limit), "log" if least else "ordinal"))

    @staticmethod
    def word(name: str, values: Sequence[str], words: Sequence[str]) -> Question:
        """For one of some words, of which `values` are legal."""
        return Question(name, tuple(values), Gene(0, max(1, len(words) - 1), "categorical"), tuple(words))

    @staticmethod
    def position(name: str, size: int, *, ordered: bool = False) -> Question:
        """For the position of an element in a sequence; `ordered` when neighbours are similar."""
        gene = Gene.ordered(0, size - 1) if ordered else Gene(0, size - 1, "categorical")
        return Question(name, range(size), gene)

    def nearest(self, wanted: int) -> Answer:
        """The legal value that comes closest to what a gene wants."""
        if self.words:
            word = self.words[min(max(wanted, 0), len(self.words) - 1)]
            return word if word in self.values else self.values[0]
        if wanted in self.values:
            return wanted
        numbers = [int(v) for v in self.values]
        return min(numbers, key=lambda n: (max(n + 1, wanted + 1) / min(n + 1, wanted + 1), n))

    def wanted(self, value: Answer) -> int:
        """The inverse of `nearest`."""
        return self.words.index(str(value)) if self.words else int(value)


Ask = Callable[[Question], Answer]


T = TypeVar("T")


def every_way(decide: Callable[[Ask], T]) -> Iterator[tuple[T, list[tuple[Question, Answer]]]]:
    """What is decided by each sequence of answers, and those of questions with several; the last varies fastest."""
    path: list[int] = []  # which of the values each question gets
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
    """A choice made by asking questions, of which later ones may depend on earlier answers.

    `decide` must depend on the draft and the answers alone, and use every answer: enumeration tries all of them.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str]

    @abstractmethod
    def decide(self, draft: Draft, ask: Ask) -> Draft | None:
        """The draft that the answers make, or None where they are not legal together."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """What decides the meaning of the genes, under names of its own."""

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

    def encode(self, draft: Draft, design: Design) -> Genes:
        """Looks among all options, so for choices of few; others know better."""
        written = attrgetter(*sorted(self.writes))
        for option, genes in self.options(draft):
            if option is not None and written(option) == written(design):
                return genes
        raise StudyError(f"the design's {', '.join(sorted(self.writes))} is none of those the study chooses from")
