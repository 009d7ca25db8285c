"""What is known, what breaks a limit, and what is left when a sampler finds nothing new."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.common.errors import IllegalFold, StudyError
from allo_dse.mapper.violation import Violation
from allo_dse.space.genes import random_suggest
from allo_dse.tune.search import screening
from allo_dse.tune.search.screening import Screen

from ..fakes import check, fake_study

SMALL: dict[str, Any] = {"size": 512, "at_most": 8, "max_nodes": 2}


def legal(study: Any) -> set[str]:
    return {candidate.key for candidate in study.space.designs() if not check(candidate.design)}


@pytest.mark.parametrize("sampler", ["evolution", "random", "nsga2"])
def test_a_run_that_is_exhausted_has_seen_every_legal_design(tmp_path: Path, sampler: str) -> None:
    study = fake_study(**SMALL)
    result = study.run(10**6, run_dir=tmp_path, sampler=sampler, progress="quiet", verify=False)
    assert result.stopped == "exhausted"
    assert {record.key for record in result.records} == legal(study) != set()


def test_what_is_left_does_not_depend_on_what_was_looked_at_before() -> None:
    study = fake_study(**SMALL)
    whole, first, log = Screen(study.space, check), list[str](), list[Any]()
    while (found := whole.any_new(np.random.default_rng(len(first)))) is not None:
        first.append(found.key)
        log.append([*((broken, violations) for broken, violations in whole.taken()), (found, None)])
    assert set(first) == legal(study)
    resumed, again = Screen(study.space, check), first[:7]
    for one, violations in itertools.chain(*log[:7]):
        resumed.remember(one.key, violations, one.genes)
    while (found := resumed.any_new(np.random.default_rng(len(again)))) is not None:
        again.append(found.key)
    assert again == first


@pytest.mark.parametrize("sampler", ["evolution", "random"])
def test_a_run_gives_up_when_no_design_seems_to_keep_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    def refuse(design: Any) -> list[Violation]:
        return [Violation("core_memory", "core 0", 2, 1, "too much")]

    monkeypatch.setattr(screening, "UNMET", 40)
    study = fake_study(check=refuse)
    for again in (1, 2):  # the second run looks at others
        with pytest.raises(StudyError, match="designs keeps the limits: core_memory rules out 100%"):
            study.run(10, run_dir=tmp_path, sampler=sampler, progress="quiet", verify=False)
        assert (tmp_path / "log.jsonl").read_text().count('"violation"') >= 40 * again


@pytest.mark.parametrize(("limit", "hint"), [("core_memory", "a larger device"), ("static_control", "inputs=")])
def test_a_run_that_gives_up_says_what_helps(monkeypatch: pytest.MonkeyPatch, limit: str, hint: str) -> None:
    monkeypatch.setattr(screening, "UNMET", 3)
    study = fake_study(**SMALL)
    screen = Screen(study.space, lambda design: [Violation(limit, "core 0", 2, 1, "for i in range(n)")])
    with pytest.raises(StudyError) as error:
        screen.any_new(np.random.default_rng(0))
    assert hint in str(error.value.hint)


@pytest.mark.parametrize(("kind", "count"), [("alike", 5), ("different", 9), ("unfoldable", 9)])
def test_a_run_gives_up_sooner_when_all_designs_exceed_one_limit_alike(
    monkeypatch: pytest.MonkeyPatch, kind: str, count: int
) -> None:
    monkeypatch.setattr(screening, "UNMET", 5)
    monkeypatch.setattr(screening, "MOST_INVALID", 9)
    needs = itertools.count(2)

    def refuse(design: Any) -> list[Violation]:
        need = next(needs)
        if kind == "unfoldable" and need % 2:
            raise IllegalFold("two kernels of a chain differ")
        return [Violation("core_memory", "core 0", need if kind == "different" else 2, 1)]

    screen = Screen(fake_study(**SMALL).space, refuse)
    with pytest.raises(StudyError):
        screen.any_new(np.random.default_rng(0))
    assert screen.invalid == count


def test_a_run_that_has_found_a_legal_design_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "MOST_INVALID", 1)
    study = fake_study(**SMALL)
    (first, *_) = legal(study)
    screen = Screen(study.space, check)
    screen.remember(first, None, {})
    found = 1
    while screen.any_new(np.random.default_rng(found)) is not None:
        found += 1
    assert found == len(legal(study))


def test_a_proposal_that_breaks_a_limit_is_repaired_where_most_do() -> None:
    """Random designs keep the limit too seldom to be found by as many proposals."""
    study, most = fake_study(), 1

    def full(design: Any) -> list[Violation]:
        nodes = design.fold.node_count
        return [Violation("compute_tiles", "device", nodes, most)] if nodes > most else []

    screen, rng, found = Screen(study.space, full), np.random.default_rng(0), list[Any]()
    drawn = [study.space.decode(random_suggest(rng)) for _ in range(300)]
    assert sum(one is not None and not full(one.design) for one in drawn) < 10
    for _ in range(80):
        if candidate := screen.decode_unless(None, random_suggest(rng)):
            found.append(candidate.design)
    assert len({design.key for design in found}) == len(found) > 8
    assert not any(map(full, found))
