import hashlib
import json
import math
from itertools import permutations
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allo_dse.backends.fpga.choices.schedules import pipeline
from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import AxisFold
from allo_dse.space.choices.fold_genes import AxisOptions, KernelOptions, _orders, plans_of, wanted_folds
from allo_dse.space.genes import random_suggest, suggest_from
from allo_dse.space.params import Assignment, choices

from ..support.values import present
from ..tune.fakes import FakePrograms, fake_study

STUDY = fake_study()
STUDY.space.decode_genes({})  # meets every gene


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=150)
def test_encoding_a_decoded_design_gives_it_back(seed: Any) -> None:
    candidate = STUDY.space.decode(random_suggest(np.random.default_rng(seed)))
    assert candidate is not None
    genes = STUDY.space.encode(candidate.design)
    again = STUDY.space.decode_genes(genes)
    assert again is not None
    assert again.key == candidate.key


@given(st.dictionaries(st.sampled_from(sorted(STUDY.space.genes) or ["x"]), st.integers(-100, 100)))
@settings(deadline=None, max_examples=100)
def test_any_genes_decode_to_a_legal_design(genes: Any) -> None:
    candidate = STUDY.space.decode(suggest_from(genes))
    assert candidate is not None
    assert candidate.design.fold.node_count <= STUDY.folds.max_nodes


def test_every_design_of_a_small_space_has_genes_of_its_own() -> None:
    space = fake_study(size=128, at_most=2, max_nodes=4).space
    designs = list(space.designs())
    assert space.count(10**6) == len(designs)
    assert len({c.key for c in designs}) == len(designs)
    for candidate in designs:
        assert present(space.decode_genes(candidate.genes)).key == candidate.key


@given(st.dictionaries(st.text(), st.text()))
@example({"fold": '"fold": null'})
def test_keys_are_hashes_of_designs_as_json(params: dict[str, str]) -> None:
    design = present(STUDY.space.decode_genes({})).design
    changed = replace(design, program=replace(design.program, params=params))
    text = json.dumps(changed.to_dict(), sort_keys=True)
    assert changed.key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_count_gives_up_beyond_its_limit() -> None:
    space = fake_study().space
    assert space.count(20479) is None
    assert space.count(20480) == 20480


@given(st.integers(1, 6).flatmap(lambda n: st.permutations(range(n))))
def test_permutations_are_numbered_lexicographically(permutation: Any) -> None:
    number = _orders(len(permutation))[0].index(tuple(permutation))
    assert sorted(permutations(range(len(permutation))))[number] == tuple(permutation)


def axis(*spatial: int) -> AxisOptions:
    return AxisOptions([AxisFold(s, "block", "bundle") for s in spatial])


def test_what_leaves_no_choice_under_one_size_is_no_choice() -> None:
    assert axis(1).varies == set()
    assert axis(1, 2).varies == {"spatial"}
    mixed = AxisOptions([AxisFold(1, "block", "chain"), AxisFold(2, "block"), AxisFold(2, "cyclic")])
    assert mixed.varies == {"spatial", "pattern"}


def test_wanted_sizes_are_met_as_nearly_as_the_axis_allows() -> None:
    options = axis(1, 3, 6, 48)
    assert [options.nearest(w) for w in (1, 2, 4, 5, 8, 16, 17, 100)] == [1, 3, 3, 6, 6, 6, 48, 48]


@given(st.lists(st.lists(st.integers(1, 32), min_size=1, max_size=3), min_size=1, max_size=3), st.integers(1, 32))
def test_kernels_share_the_node_budget(wanted: Any, budget: Any) -> None:
    kernels = [KernelOptions(f"k{i}", tuple(axis(1, 2, 4, 8, 16) for _ in axes)) for i, axes in enumerate(wanted)]
    genes = {f"fold.k{i}.{a}.spatial": n for i, axes in enumerate(wanted) for a, n in enumerate(axes)}
    plans = plans_of(kernels, wanted_folds(kernels, suggest_from(genes), budget), budget, list)
    nodes = sum(plan.nodes for plan in plans)
    assert nodes <= max(budget, len(kernels))
    asked = [[axis(1, 2, 4, 8, 16).nearest(min(n, budget, 32)) for n in axes] for axes in wanted]
    if sum(math.prod(axes) for axes in asked) <= budget and budget > 1:
        assert [[a.spatial for a in plan.axes] for plan in plans] == asked


def test_conditional_parameters_have_genes_only_when_active() -> None:
    from allo_dse.space.params import choices

    study = fake_study(
        params={
            "size": 2048,
            "Pm": 8,
            "Pn": 8,
            "Pk": 8,
            "kind": choices("ab"),
            "x": choices([1, 2], when=lambda p: p.kind == "b"),
        }
    )
    first = present(study.space.decode_genes({"param.kind": 0, "param.x": 1}))
    second = present(study.space.decode_genes({"param.kind": 1, "param.x": 1}))
    assert "param.x" not in first.genes
    assert second.params == Assignment({"size": 2048, "Pm": 8, "Pn": 8, "Pk": 8, "kind": "b", "x": 2})


@given(st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=50)
def test_the_key_of_a_design_is_the_hash_of_its_plain_data(seed: int, more: bool) -> None:
    design = present(STUDY.space.decode(random_suggest(np.random.default_rng(seed)))).design
    if more:
        design = replace(design, schedule=(pipeline("a:i").directive(2),), depths=(("s", 4),), slowdown=0.1)
    text = json.dumps(design.to_dict(), sort_keys=True)
    assert design.key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_an_estimate_is_near_the_number_of_designs() -> None:
    about, error = fake_study().space.estimate()
    assert abs(about - 20480) <= 4 * error


def test_a_space_that_is_clearly_too_large_is_not_counted() -> None:
    made = 0

    class Counting(FakePrograms):
        def load(self, params: Any, watch: Any = None) -> Any:
            nonlocal made
            made += 1
            return super().load(params, watch)

    tiles = {"Pm": 32, "Pn": 32, "Pk": 32}
    params = {**tiles, **{f"c{n}": choices([0, 1]) for n in range(40)}}
    space = fake_study(params=params, programs=Counting()).space
    assert space.count(1000) is None
    assert made <= 64
