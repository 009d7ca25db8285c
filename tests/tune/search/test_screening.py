"""What is known, what breaks a limit, and what is left when a sampler finds nothing new."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.tune.search.screening import Screen
from tests.tune.fakes import check, fake_study

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
    whole, first, log = Screen(study.space, check), list[str](), list[list[str]]()
    while (found := whole.any_new(np.random.default_rng(len(first)))) is not None:
        first.append(found.key)
        log.append([found.key, *(broken.key for broken, _ in whole.taken())])
    assert set(first) == legal(study)
    resumed, again = Screen(study.space, check), first[:7]
    for key in itertools.chain(*log[:7]):
        resumed.remember(key, None)
    while (found := resumed.any_new(np.random.default_rng(len(again)))) is not None:
        again.append(found.key)
    assert again == first
