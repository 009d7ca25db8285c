"""Texts of logs and tables."""

from __future__ import annotations

from collections import Counter

import pytest

from allo_dse.tune.store.run_info import KIND_LENGTH, failure_kind, failures_by_kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("E: at 0x7f3a after 1.5e-3 s, 12 left\nmore", "E: at N after N s, N left"),
        ("  \nE: no\n", "E: no"),
        ("", "failed"),
        (None, "failed"),
        ("word " * 100, ("word " * 100)[: KIND_LENGTH - 1] + "…"),
    ],
)
def test_failures_of_one_reason_are_of_one_kind(error: str | None, kind: str) -> None:
    assert failure_kind(error) == kind


def test_a_kind_is_shown_by_the_first_failure_of_it() -> None:
    found = failures_by_kind(["timeout after 3 s", "no licence\nhint", "timeout after 4.5 s", None, "", "no licence"])
    assert found == Counter({"timeout after 3 s": 2, "no licence\nhint": 2, "failed": 2})
