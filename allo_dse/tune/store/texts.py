"""Texts that evaluators, verifiers and people give, as logs, tables and pages can hold them: valid and bounded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

TEXT_LENGTH = 4000
"""Characters of a text that are kept: more than a message needs, and a thousand of them still make a small log."""
KIND_LENGTH = 80
_DIFFERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")


def valid_text(text: str, longest: int = TEXT_LENGTH) -> str:
    """A text with halves of surrogate pairs spelt out, which no encoding has, and without the middle of a long one."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def valid(value: Any) -> Any:
    """Plain data with all texts in it made valid."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(str(name)): valid(entry) for name, entry in value.items()}
    return [valid(entry) for entry in value] if isinstance(value, list | tuple) else value


def error_text(error: BaseException) -> str:
    """An exception by type and message, also one that cannot say what it means."""
    try:
        text = str(error)
    except BaseException as another:
        if isinstance(another, KeyboardInterrupt):
            raise
        text = f"(its text cannot be had: {type(another).__name__})"
    name = type(error).__name__
    return valid_text(f"{name}: {text}" if text else name)


def shortened(text: str, longest: int) -> str:
    """A text without the end of a long one."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def failure_kind(error: str | None) -> str:
    """What failures have in common whose reason is the same: the first line, without numbers."""
    return shortened(_DIFFERS.sub("N", (error or "failed").strip().partition("\n")[0]), KIND_LENGTH)


def failures_by_kind(errors: Iterable[str | None]) -> Counter[str]:
    """How often there was a failure of each kind, by the first text of it."""
    first: dict[str, str] = {}
    return Counter(first.setdefault(failure_kind(error), (error or "failed").strip()) for error in errors)
