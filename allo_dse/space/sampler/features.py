"""Designs as points: what a model takes to be alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ..gene import Gene
from .selection import Floats, Integers

ABSENT = -0.5  # feature of a gene that a design does not have; those that it has are 0 to 1


class Features(Struct, frozen=True):
    """Genes as numbers: positions in their ranges from 0 to 1, and one number per category.

    Attributes:
        names: of the genes.
        groups: the position in `names` of the gene that each feature belongs to, (features,).
    """

    names: tuple[str, ...]
    ranges: tuple[Gene, ...]
    groups: Integers

    @classmethod
    def of(cls, designs: Sequence[Mapping[str, int]], genes: Mapping[str, Gene]) -> Features:
        """For everything that differs between designs."""
        known = sorted({name for design in designs for name in design})
        names = tuple(name for name in known if len({design.get(name) for design in designs}) > 1)
        ranges = tuple(genes[name] for name in names)
        widths = [_width(gene) for gene in ranges]
        return cls(names, ranges, np.repeat(np.arange(len(names)), widths))

    def encode(self, designs: Sequence[Mapping[str, int]]) -> Floats:
        """(designs, features)."""
        columns: list[Floats] = []
        for name, gene in zip(self.names, self.ranges, strict=True):
            values = np.array([design.get(name, gene.low - 1) for design in designs], float)
            if gene.kind == "categorical":
                # Different categories are at distance 1.
                columns += [(values == value) * 0.5**0.5 for value in range(gene.low, gene.high + 1)]
            else:
                columns.append(np.where(values < gene.low, ABSENT, _position(values, gene)))
        return np.stack(columns, 1) if columns else np.empty((len(designs), 0))


def _width(gene: Gene) -> int:
    return gene.high - gene.low + 1 if gene.kind == "categorical" else 1


def _position(values: Floats, gene: Gene) -> Floats:
    low, high = float(gene.low), float(gene.high)
    if gene.kind == "log":
        values, low, high = np.log(np.maximum(values, low)), np.log(low), np.log(high)
    found: Floats = (values - low) / max(1e-9, high - low)
    return found


class Numbers(Struct, frozen=True):
    """Numbers that are features as they are, from 0 to 1 where they were met first.

    Attributes:
        low, span: of each number, (numbers,); a span of 0 where it makes no difference.
    """

    low: Floats
    span: Floats

    @classmethod
    def of(cls, numbers: Floats) -> Numbers:
        """For these, (designs, numbers), of one design at least."""
        return cls(numbers.min(0), np.ptp(numbers, 0))

    @property
    def count(self) -> int:
        """How many of them differ."""
        return int((self.span > 0).sum())

    def encode(self, numbers: Floats) -> Floats:
        """(designs, features)."""
        differ = self.span > 0
        coded: Floats = ((numbers - self.low) / np.where(differ, self.span, 1.0))[:, differ]
        return coded
