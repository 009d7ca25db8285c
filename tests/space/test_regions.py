"""A space in regions: each design is in one, and what is said of a region holds for all of its designs."""

from __future__ import annotations

from typing import Any

import pytest

from allo_dse.common.records import replace
from allo_dse.lang import install
from allo_dse.space.choice import Question, QuestionChoice
from allo_dse.space.regions import regions_of
from allo_dse.space.space import Space

from ..support.values import present
from ..tune.fakes import fake_study

install()

from studies import ffn_npu, vector_add_npu

SPACES: dict[str, Any] = {
    "one kernel": lambda: vector_add_npu.study(),
    "several kernels": lambda: ffn_npu.study(),
    "no program": lambda: fake_study(size=128, at_most=4, max_nodes=4),
}


@pytest.mark.parametrize("name", ["one kernel", "several kernels"])
def test_each_design_is_in_one_region(name: str) -> None:
    space = SPACES[name]().space
    found: dict[str, Any] = {}
    for region in present(regions_of(space)):
        own = list(region.candidates())
        parts = [[c.key for c in part.candidates()] for part in region.parts()]
        assert [len(part) for part in parts] == [part.size for part in region.parts()]
        assert [key for part in parts for key in part] == [c.key for c in own]
        assert len(own) == region.size > 0
        assert {c.design.fold.node_count for c in own} == {region.nodes}
        assert not found.keys() & {c.key for c in own}
        found |= {c.key: c.genes for c in own}
    assert found == {c.key: c.genes for c in space.designs()}
    assert len(found) == space.count(10**6)


def test_a_space_whose_choices_hang_on_the_fold_has_none() -> None:
    class HangsOnTheFold(QuestionChoice):
        reads = frozenset({"fold"})
        writes = frozenset({"buffering.input_depth"})

        def decide(self, draft: Any, ask: Any) -> Any:
            depth = 1 + int(ask(Question.position("input_depth", 2)))
            return replace(draft, buffering=replace(draft.buffering, input_depth=depth))

        def describe(self) -> dict[str, object]:
            return {"input_depths": [1, 2]}

    space = SPACES["one kernel"]().space
    assert regions_of(Space(space.start, [*space.choices, HangsOnTheFold()])) is None
    assert regions_of(SPACES["no program"]().space) is None
