"""Data of other projects, with which some tests compare: a folder beside the clone, no part of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
ABSENT = "compares with data of other projects, which are not here: "
"""Begins the reason of every test that is skipped without such data."""


def _reason(path: Path) -> str:
    return f"{ABSENT}../shared/{path.relative_to(SHARED).parts[0]}"


def requires(path: Path) -> pytest.MarkDecorator:
    """Mark tests that are skipped unless the file or folder exists."""
    return pytest.mark.skipif(not path.exists(), reason=_reason(path))


def require(path: Path) -> None:
    """Skip the calling test unless the file or folder exists."""
    if not path.exists():
        pytest.skip(_reason(path))
