"""Mutated programs and device files: they run, or end with an error that names a place; nothing else."""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from allo_dse.device.device import Device
from allo_dse.lang import install
from allo_dse.tune.study import load_studies

from .attack import Found, outcome, smallest

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path for path in (ROOT / "studies").glob("[a-z]*.py") if path.stem != "hand_made")
DEVICES = sorted((ROOT / "allo_dse/device/files").glob("*.toml"))
NUMBERS = ("0", "1", "-1", "3", "7", "2.5", "64", "1000000", "10**30", "None", "'x'", "nan", "[]", "1e308", "''")
SECONDS = 60
MOST_EDITS = 4

Edit = tuple[int, str]
"""A token's number and what is put in its place."""


def _tokens(text: str, pattern: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(pattern, text)]


def _edited(text: str, spans: Sequence[tuple[int, int]], edits: Sequence[Edit]) -> str:
    for number, new in sorted(edits, reverse=True):
        start, end = spans[number]
        text = text[:start] + new + text[end:]
    return text


def _drawn(text: str, spans: Sequence[tuple[int, int]], rng: random.Random) -> list[Edit]:
    words = [text[start:end] for start, end in spans]
    chosen = rng.sample(range(len(spans)), min(rng.randint(1, MOST_EDITS), len(spans)))
    return [(number, _other(words, number, rng)) for number in chosen]


def _draws(text: str, spans: Sequence[tuple[int, int]], rng: random.Random) -> Iterator[Sequence[Edit]]:
    while True:
        yield _drawn(text, spans, rng)


def _parses(text: str) -> bool:
    """Whether Python takes it: what it does not take never comes to our compiler."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _other(words: Sequence[str], number: int, rng: random.Random) -> str:
    kind = rng.randrange(5)
    if kind == 0:
        return ""
    if kind == 1:
        return f"{words[number]} {words[number]}"
    if kind == 2:
        return rng.choice(NUMBERS)
    return rng.choice(words)


@dataclass(frozen=True)
class MutatedPrograms:
    """Words of a study's program are dropped, doubled, exchanged; then it is compiled."""

    name: str = "programs"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        source = rng.choice(STUDIES)
        text = source.read_text(encoding="utf-8")
        body = min(found for found in (text.find("\ndef "), text.find("\n@df.")) if found >= 0)
        end = text.index("\ndef study")
        spans = [(s, e) for s, e in _tokens(text, r"[\w.]+|[-+*/%@<>=!]+|[\[\](),:]") if body < s and e < end]
        edits = next(filter(lambda tried: _parses(_edited(text, spans, tried)), _draws(text, spans, rng)))
        _attack(folder / source.name, text, spans, edits, self._compile)

    def _compile(self, path: Path) -> None:
        install()
        with _whole_modules("allo", "math", "numpy"):
            for study in load_studies(path):
                _ = study.first_program().vmg.graph


@contextmanager
def _whole_modules(*packages: str) -> Iterator[None]:
    """What a program assigns to the modules that it imports (`for df.region in ...`) is gone afterwards."""
    modules = [module for name, module in sys.modules.items() if name.startswith(packages)]
    before = [dict(vars(module)) for module in modules]
    try:
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            vars(module).update(names)


@dataclass(frozen=True)
class MutatedDevices:
    """Words of a device file are dropped, doubled, exchanged; then it is loaded."""

    name: str = "devices"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        source = rng.choice(DEVICES)
        text = source.read_text(encoding="utf-8")
        spans = _tokens(text, r"[\w.\"]+|[\[\]=,{}]")
        _attack(folder / source.name, text, spans, _drawn(text, spans, rng), Device.load)


def _attack(
    path: Path, text: str, spans: Sequence[tuple[int, int]], edits: Sequence[Edit], use: Callable[[Path], object]
) -> None:
    """Use a file with edits, and where that ends wrongly find the fewest that do it.

    Raises:
        Found: with those.
    """

    def said(tried: Sequence[Edit]) -> str:
        path.write_text(_edited(text, spans, tried), encoding="utf-8")
        return outcome(lambda: use(path), path, SECONDS)

    if wrong := said(edits):
        least = smallest(edits, lambda tried: bool(said(tried)))
        raise Found(f"{path.name}: {wrong}\n{_shown(text, spans, least)}")


def _shown(text: str, spans: Sequence[tuple[int, int]], edits: Sequence[Edit]) -> str:
    lines = []
    for number, new in sorted(edits):
        start, end = spans[number]
        lines.append(f"  line {text.count(chr(10), 0, start) + 1}: {text[start:end]!r} -> {new!r}")
    return "\n".join(lines)
