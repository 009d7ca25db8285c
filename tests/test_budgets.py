"""Budgets of the package: they measure, and an exceeded one fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import budgets


def test_every_budget_is_kept() -> None:
    found, allowed = budgets.measures(), budgets.limits()
    assert found.keys() == allowed.keys()
    assert {name: value for name, value in found.items() if value > allowed[name]} == {}


def test_measures_of_a_small_package(tmp_path: Path) -> None:
    package = tmp_path / "allo_dse"
    package.mkdir()
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "low.py").write_text('"""What it has."""\n\nX = 1  # a comment\n')
    (package / "top.py").write_text(
        '"""The top."""\n\nfrom .low import X\n\n\ndef f(device):\n    return isinstance(device, NpuDevice), X\n'
    )
    assert budgets.measures(tmp_path) == {
        "tokens": 26,
        "modules": 3,
        "longest_import_chain": 2,
        "small_modules_with_one_importer": 1,
        "kind_tests_outside_backends": 1,
        "docstrings_with_clause_word": 1,
    }


def test_an_exceeded_budget_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(budgets, "measures", lambda: {"tokens": 26, "modules": 4})
    monkeypatch.setattr(budgets, "limits", lambda: {"tokens": 26, "modules": 3})
    assert budgets.main([]) == 1
    assert "EXCEEDED" in capsys.readouterr().out
