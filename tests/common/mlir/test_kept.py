"""What is made by compilation is kept on disk, and nothing damaged is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.mlir import jit


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _files() -> list[Path]:
    return sorted(path for path in jit.directory().rglob("*") if path.is_file())


def test_what_is_known_is_what_was_made_of_the_same() -> None:
    assert jit.known("t", b"a") is None
    jit.keep("t", b"a", b"A")
    assert (jit.known("t", b"a"), jit.known("u", b"a"), jit.known("t", b"b")) == (b"A", None, None)
    jit.keep("t", b"a", b"B")
    assert jit.known("t", b"a") == b"B"


@pytest.mark.parametrize("environment", [{"XDG_CACHE_HOME": "/proc/none"}, {"HOME": "~"}])
def test_a_cache_that_cannot_be_written_is_done_without(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    jit.keep("t", b"a", b"A")
    assert jit.known("t", b"a") is None
    assert not Path("~").exists()


@given(made=st.binary(max_size=40), damaged=st.binary(max_size=80))
def test_damaged_files_are_not_used(made: bytes, damaged: bytes) -> None:
    jit.keep("t", b"a", made)
    (file,) = _files()
    intact = file.read_bytes()
    file.write_bytes(damaged)
    assert jit.known("t", b"a") == (made if damaged == intact else None)


def test_what_is_unused_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        jit.keep("t", bytes([number]), bytes(100))
    for age, file in enumerate(_files()):
        os.utime(file, (age, age))
    oldest = [number for number in range(8) if os.stat(_file(number)).st_mtime < 4]
    assert jit.known("t", bytes([oldest[0]])) is not None  # from now on in use
    monkeypatch.setattr(jit, "LIMIT_BYTES", 1000)
    monkeypatch.setattr(jit, "_COUNTED", "")
    jit.keep("t", b"new", bytes(100))
    left = {number for number in range(8) if jit.known("t", bytes([number])) is not None}
    assert oldest[0] in left
    assert not left & set(oldest[1:])
    assert sum(file.stat().st_size for file in _files()) <= 500
    assert jit.known("t", b"new") is not None


def _file(number: int) -> Path:
    before = {path: path.stat().st_mtime for path in _files()}
    return next(path for path in before if path == jit._file("t", bytes([number])))
