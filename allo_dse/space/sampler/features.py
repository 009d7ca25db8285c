"""Designs as points: what a model takes to be alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ..gene import Gene
from .selection import Floats, Integers

ABSENT = -0.5  # feature of a gene that a design does not have; those that it has are 0 to 1


class Features(Struct, frozen=True):
    """Genes as numbers: positions in their ranges from 0 to 1, and one number per category that was met.

    Attributes:
        names: of the genes.
        met: the categories of each gene that is one of them, that designs have.
        groups: the position in `names` of the gene that each feature belongs to, (features,).
    """

    names: tuple[str, ...]
    ranges: tuple[Gene, ...]
    met: tuple[tuple[int, ...], ...]
    groups: Integers

    @classmethod
    def of(cls, designs: Sequence[Mapping[str, int]], genes: Mapping[str, Gene]) -> Features:
        """For everything that differs between designs."""
        known = sorted({name for design in designs for name in design})
        names = tuple(name for name in known if len({design.get(name) for design in designs}) > 1)
        ranges = tuple(genes[name] for name in names)
        met = tuple(
            tuple(sorted({design[name] for design in designs if name in design})) if gene.kind == "categorical" else ()
            for name, gene in zip(names, ranges, strict=True)
        )
        return cls(names, ranges, met, np.repeat(np.arange(len(names)), [len(categories) + 1 for categories in met]))

    def encode(self, designs: Sequence[Mapping[str, int]]) -> Floats:
        """(designs, features)."""
        columns: list[Floats] = []
        for name, gene, met in zip(self.names, self.ranges, self.met, strict=True):
            values = np.array([design.get(name, gene.low - 1) for design in designs], float)
            if gene.kind == "categorical":
                # Each is at distance 1 from those that were met; all others are as far from these, and share a number.
                others = (values >= gene.low) & ~np.isin(values, met)
                columns += [which * 0.5**0.5 for which in (*(values == value for value in met), others)]
            else:
                columns.append(np.where(values < gene.low, ABSENT, _position(values, gene)))
        return np.stack(columns, 1) if columns else np.empty((len(designs), 0))


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
