"""Steps of genes: what the local search of the sampler relies on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from allo_dse.space.genes import Gene
from allo_dse.space.sampler.evolution import Variation


def steps(gene: Gene, value: int) -> list[int]:
    """The values that a step leads to in at least a tenth of the cases: not those that chance alone gives."""
    rng = np.random.default_rng(0)
    variation = Variation(["g"], {"g": gene})
    found = Counter(variation.step(np.full(400, value), np.zeros(400, int), rng).tolist())
    return sorted(other for other, count in found.items() if count >= 40)


@pytest.mark.parametrize(
    ("kind", "value", "near"),
    [
        ("ordinal", 50, [49, 51]),
        ("ordinal", 1, [2]),
        ("ordinal", 100, [99]),
        ("log", 32, [16, 64]),
        ("log", 1, [2]),
        ("log", 100, [50, 99]),
    ],
)
def test_a_step_leads_to_neighbours_and_back_at_the_ends_of_the_range(kind: str, value: int, near: list[int]) -> None:
    assert steps(Gene(1, 100, kind), value) == near  # type: ignore[arg-type]
