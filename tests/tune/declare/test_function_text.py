"""Functions are known by what they do and what they use, not by where it stands."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.declare.function_text import identity_text

HELPERS = """
STEP = 2

def unused():
    return 1

def step(x):
    return x + STEP
"""
PROGRAM = '''
from functools import cache

import helpers
from helpers import step
from numpy.testing import assert_allclose

DEPTH, OTHER = 4, 5

@cache
def size(P):
    return P if P < 64 else 2 * P

def program(P):
    """What it is."""
    def kernel(x: "int"):
        s: "int" = 1 if P < 8 else 2  # a comment
        t: list[DEPTH]
        u: list[helpers.STEP]
        assert_allclose(s, step(size(P)))
        return [s * y for y in x]

    return kernel
'''
ALIKE = {
    "a comment": ("  # a comment", ""),
    "a docstring": ("What it is.", "Something."),
    "its place": ("DEPTH, OTHER", "\n\nDEPTH, OTHER"),
    "what it does not use": ("OTHER = 4, 5", "OTHER = 4, 6"),
    "what others do not use": ("return 1", "return 2"),
}
OTHER = {
    "what some parameters decide": ("P < 8 else 2", "P < 8 else 3"),
    "a type": ('s: "int"', 's: "float"'),
    "a number that a type has": ("OTHER = 4, 5", "OTHER = 3, 5"),
    "what it calls": ("else 2 * P", "else 3 * P"),
    "what other files say": ("x + STEP", "x - STEP"),
    "a number of another file": ("STEP = 2", "STEP = 3"),
}


@pytest.fixture
def text_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def text(old: str = "", new: str = "") -> str:
        for name, said in (("helpers", HELPERS), ("program", PROGRAM)):
            (tmp_path / f"{name}.py").write_text(said.replace(old, new) if old else said)
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return identity_text(importlib.import_module("program").program)

    return text


def test_what_makes_no_difference(text_of: Any) -> None:
    assert {what: text_of(*change) == text_of() for what, change in ALIKE.items()} == dict.fromkeys(ALIKE, True)


def test_what_makes_a_difference(text_of: Any) -> None:
    assert {what: text_of(*change) != text_of() for what, change in OTHER.items()} == dict.fromkeys(OTHER, True)


def test_what_installed_packages_do_is_their_matter(text_of: Any) -> None:
    assert "assert_allclose" in text_of()
    assert "rtol" not in text_of()
