"""Data as texts that are the same in every process, to be hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def collection_text(value: Any, text: Callable[[Any], str]) -> str | None:
    """Of an array, a mapping or a sequence; None for anything else.

    Args:
        text: of what mappings and sequences hold.
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(key)}: {text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(text, value)) + ")"
    return None
