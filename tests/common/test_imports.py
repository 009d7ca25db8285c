"""Packages are imported without what they import for others."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from allo_dse.common.imports import standing_in


def test_stand_ins_are_there_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    known = sys.modules["subprocess"]
    with standing_in({"no_such_module": known, "subprocess": None}):
        import no_such_module  # type: ignore[import-not-found]

        assert no_such_module is known
        assert sys.modules["subprocess"] is known
    assert "no_such_module" not in sys.modules


def test_nothing_stands_in_where_other_threads_could_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    with standing_in({"no_such_module": None}), pytest.raises(ImportError):
        import no_such_module  # noqa: F401
    assert "no_such_module" not in sys.modules


def test_the_solver_comes_without_pandas_and_pandas_works_afterwards() -> None:
    code = """
import sys
from allo_dse.common.cp_sat import answer, cp_model
assert "pandas" not in sys.modules
import pandas
model = cp_model.CpModel()
x = model.new_int_var(0, 9, "x")
model.maximize(x)
status, solver = answer(model, work=1.0)
assert pandas.Series([solver.value(x)]).sum() == 9
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
