"""Variation of designs: mutation, crossover, neighbours and random designs, many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from ..choice import Gene, Genes
from .pareto import Booleans, Floats, Integers
from .surrogate import as_rows

FINE_STEPS = (0.5, 5.0)  # steps of a fine gene, as negative powers of ten of its range
ANY = 0.25  # probability that a mutation draws any value instead of a near one


class Variation:
    """Makes designs from others. A design is a row of values, one per gene, below the gene's range for an absent one.

    Args:
        names: names of the genes, sorted.
        genes: range of each gene.
    """

    def __init__(self, names: Sequence[str], genes: Mapping[str, Gene]) -> None:
        self.names, self.ranges = tuple(names), [genes[name] for name in names]
        self._low = np.array([gene.low for gene in self.ranges], np.int64)
        self._high = np.array([gene.high for gene in self.ranges], np.int64)
        kinds = np.array([gene.kind for gene in self.ranges], object)
        self._is = {kind: kinds == kind for kind in ("log", "fine", "categorical")}
        _, self._groups = np.unique([_group(name) for name in names], return_inverse=True)

    @property
    def absent(self) -> Integers:
        """A row without genes."""
        return self._low - 1

    def rows(self, designs: Sequence[Mapping[str, int]]) -> Integers:
        """Return designs as rows, (designs, genes)."""
        return as_rows(designs, self.names, self.ranges)

    def genes(self, row: Integers) -> Genes:
        """Return a row as a design."""
        pairs = zip(self.names, row.tolist(), self.ranges, strict=True)
        return {name: value for name, value, gene in pairs if value >= gene.low}

    def present(self, rows: Integers) -> Booleans:
        """Return a mask of the genes that designs have, (designs, genes)."""
        found: Booleans = rows >= self._low
        return found

    def draw(self, columns: Integers, rng: np.random.Generator) -> Integers:
        """Draw a value for each of these genes; each octave of a logarithmic gene is equally likely."""
        low, high, share = self._low[columns], self._high[columns], rng.random(len(columns))
        found = low + np.floor(share * (high - low + 1.0)).astype(np.int64)
        if (logarithmic := self._is["log"][columns]).any():
            first, last = np.log(low[logarithmic] - 0.5), np.log(high[logarithmic] + 0.5)
            found[logarithmic] = np.rint(np.exp(first + (last - first) * share[logarithmic]))
        return np.clip(found, low, high)

    def step(self, values: Integers, columns: Integers, rng: np.random.Generator) -> Integers:
        """Draw another value for each of these genes: a near one three times out of four where they are ordered."""
        low, high = self._low[columns], self._high[columns]
        values = np.clip(values, low, high)
        other = self.draw(columns, rng)
        other = np.where(other == values, low + (values - low + 1) % (high - low + 1), other)
        up = rng.random(len(columns)) < 0.5
        # The distance to the best value is unknown: fine genes take steps of all sizes.
        fine = np.rint((high - low) * 10.0 ** -rng.uniform(*FINE_STEPS, len(columns))).astype(np.int64)
        is_fine = self._is["fine"][columns]
        size = np.where(is_fine, np.maximum(1, fine), np.where(self._is["log"][columns], values, 1))
        moved = np.where(up, values + size, values - np.where(is_fine, size, (size + 1) // 2))
        back = np.where(up, -1, 1)
        for turned in (values + back, values - back):  # at an end of the range, step back
            moved = np.where((moved < low) | (moved > high), turned, moved)
        anywhere = self._is["categorical"][columns] | (rng.random(len(columns)) < ANY)
        return np.where(anywhere, other, np.clip(moved, low, high))

    def random(self, like: Integers, rng: np.random.Generator) -> Integers:
        """Return random designs with the same sets of genes as others, (designs, genes)."""
        found, present = like.copy(), self.present(like)
        found[present] = self.draw(np.nonzero(present)[1], rng)
        return found

    def neighbours(self, one: Integers, count: int, rng: np.random.Generator) -> Integers:
        """Return designs that differ from one in a gene, (designs, genes): all of a gene with few values.

        Args:
            count: most values per gene.
        """
        columns = np.flatnonzero(self.present(one))
        low, span = self._low[columns], (self._high - self._low)[columns]
        few, many = columns[span < count], np.repeat(columns[span >= count], count)
        every = [low[n] + np.arange(span[n] + 1) for n in np.flatnonzero(span < count).tolist()]
        values = np.concatenate((*every, self.step(one[many], many, rng)))
        columns = np.concatenate((np.repeat(few, [len(of) for of in every]), many))
        found = np.repeat(one[None], len(columns), 0)
        found[np.arange(len(columns)), columns] = values
        different: Integers = found[values != one[columns]]
        return different

    def cross(self, one: Integers, other: Integers, rng: np.random.Generator) -> Integers:
        """Return children that have each group of genes from either parent, (children, genes)."""
        groups = int(self._groups.max(initial=-1)) + 1
        take = (rng.random((len(one), groups)) < 0.5)[:, self._groups] | ~self.present(one)
        return np.where(take & self.present(other), other, one)

    def mutate(self, rows: Integers, rates: Floats, rng: np.random.Generator) -> Integers:
        """Change genes of designs, at least one each.

        Args:
            rates: expected number of genes that change beside that one, (designs,).
        """
        present = self.present(rows)
        drawn = np.where(present, rng.random(rows.shape), np.inf)
        forced = np.where(present, rng.random(rows.shape), np.inf)
        chosen = drawn < np.minimum(0.5, rates / np.maximum(1, present.sum(1)))[:, None]
        chosen |= present & (forced == forced.min(1, keepdims=True, initial=np.inf))
        found, columns = rows.copy(), np.nonzero(chosen)[1]
        found[chosen] = self.step(rows[chosen], columns, rng)
        return found


@cache
def _group(name: str) -> str:
    """Genes that cross over together: those of one mesh axis."""
    return name.rpartition(".")[0] if name.startswith("fold.") else name
