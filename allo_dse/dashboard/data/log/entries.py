"""Entries of a log, of which only what views need is decoded."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from allo_dse.tune.store.record import json_text

ABSENT = msgspec.Raw(b"null")


class Entry(msgspec.Struct, gc=False):
    """One entry of a log, of whatever type. Nothing is said of what its values are.

    What describes a design is JSON text: many designs share it, and each text is taken apart once. Choices of the
    search (`genes`) are left out.
    """

    type: Any = None
    key: Any = None
    status: Any = None
    number: Any = None
    at: Any = None
    seconds: Any = None
    evaluator: Any = None
    worker: Any = None
    cached: Any = None
    rung: Any = 0
    metrics: Any = None
    values: Any = None
    constraints: Any = None
    violations: Any = None
    error: Any = None
    ok: Any = None
    message: Any = None
    repeats: Any = 0
    cache_hits: Any = 0
    params: msgspec.Raw = ABSENT
    fold: msgspec.Raw = ABSENT
    buffering: msgspec.Raw = ABSENT
    schedule: msgspec.Raw = ABSENT
    depths: msgspec.Raw = ABSENT


TEXTS = ("params", "fold", "buffering", "schedule", "depths")
_DECODER = msgspec.json.Decoder(Entry)


def decode(line: bytes) -> Entry:
    """The entry of an intact line.

    Raises:
        ValueError, TypeError: if the line is not a JSON object.
    """
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:  # infinities, which Python's JSON has
        values = json.loads(line)
    known = {name: value for name, value in values.items() if name in Entry.__struct_fields__}
    return Entry(**{name: json_text(value) if name in TEXTS else value for name, value in known.items()})


def needed(entry: Entry, name: str) -> Any:
    """A property that an entry must have.

    Raises:
        KeyError: if it has not.
    """
    value = getattr(entry, name)
    if value is None:
        raise KeyError(name)
    return value
