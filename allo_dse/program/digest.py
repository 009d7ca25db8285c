"""A hash of what a compiled program does and how."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct

from allo_dse.common.plain_text import collection_text

from .compiled import CompiledProgram
from .decisions import Decisions
from .locations import SourceLocation

_PLAIN = frozenset({str, int, bool, float, type(None)})
_BESIDE = ("params", "warnings")  # parameters may be any objects; what is made of them is all there


def program_digest(program: CompiledProgram) -> str:
    """Of everything that a program says, but for where it stands in the source: a comment makes no difference."""
    known: dict[int, str] = {}
    told = [_text(getattr(program, own.name), known) for own in fields(CompiledProgram) if own.name not in _BESIDE]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _text(value: Any, known: dict[int, str]) -> str:
    """The same in every process; of objects that several others have, it is made once."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, SourceLocation):
        return ""
    if isinstance(value, Decisions):
        return value.digest
    if isinstance(value, Struct) or is_dataclass(value):
        if id(value) not in known:
            names = value.__struct_fields__ if isinstance(value, Struct) else [own.name for own in fields(value)]
            parts = ", ".join(_text(getattr(value, name), known) for name in names)
            known[id(value)] = f"{type(value).__name__}({parts})"
        return known[id(value)]
    found = collection_text(value, lambda one: _text(one, known))
    return repr(value) if found is None else found
