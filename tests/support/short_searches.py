"""Searches of a few trials, in tests of what is found and not of how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from allo_dse.tune.search import proposals

LISTED = 60
"""Designs of which bounds are computed before the first two are evaluated."""


@contextmanager
def few_designs_are_listed() -> Iterator[None]:
    """Larger spaces are searched by evolution: bounds of thousands of designs take longer than all else in tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LISTED", "LEAST_LISTED", "LISTED_BY_REGION"):
            patch.setattr(proposals, name, LISTED)
        yield
