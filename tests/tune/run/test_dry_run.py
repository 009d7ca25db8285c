"""What a dry run says of a space, without writing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from allo_dse.mapper.violation import Violation
from allo_dse.tune.run import dry_run
from allo_dse.tune.run.dry_run import LOOKED_AT, SpaceEstimate, estimate_space
from allo_dse.tune.run.options import RunOptions
from allo_dse.tune.store.certificate import Certificate

from ...support.values import present
from ..fakes import fake_study
from ..search.test_exact import Bounded, small

HALF = Certificate(designs=1_000, listed=True, evaluated=30, failed=0, refused=20, bounded=700, open=250)


def test_what_is_decided_and_how_long_the_rest_takes() -> None:
    found = SpaceEstimate("gemm", 1_000, "exact", 0, 20, 2.0, 5.0, HALF)
    assert found.closing_seconds == pytest.approx(2.0 + 5.0 * 300 / 50)
    assert str(found).splitlines() == [
        "gemm: a space of 1,000 designs, searched by exact",
        f"in 7 s: {HALF}",
        "to close the space: at most about 32 s",
        "nothing was written",
    ]


def test_a_small_space_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dry_run, "SECONDS", 600.0)
    found = estimate_space(small(), RunOptions(sampler="exact"))
    assert present(found.certificate).complete
    assert found.designs == present(found.certificate).designs
    assert found.to_dict()["certificate"]["open"] == 0
    assert list(tmp_path.iterdir()) == []


def test_without_bounds_nothing_is_evaluated() -> None:
    class Expensive(Bounded):
        bounding = None  # type: ignore[assignment]

        def evaluate(self, design: object) -> None:  # type: ignore[override]
            raise AssertionError("it was evaluated")

    found = estimate_space(fake_study(evaluator=Expensive), RunOptions())
    assert (found.certificate, found.closing_seconds, found.looked_at) == (None, None, LOOKED_AT)
    assert found.sampler == "evolution"
    assert f"of {LOOKED_AT} designs looked at, " in str(found)


def test_a_space_without_designs_says_why() -> None:
    study = fake_study(check=lambda design: [Violation("core_memory", "core 0", 2, 1, "too much")])
    found = estimate_space(study, RunOptions())
    assert "break a limit of the device: core_memory" in found.refusal
    assert "data memory on core 0: needs 2 bytes, has 1 bytes (too much)" in str(found)
