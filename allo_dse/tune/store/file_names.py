"""Names that people gave, as names of files."""

from __future__ import annotations

import hashlib
import re

LONGEST = 80


def file_name(name: str, otherwise: str = "objective") -> str:
    """A name with whatever a file name should not hold replaced; never empty, hidden, or a path."""
    safe = re.sub(r"[^\w.+-]+", "_", name).strip("._") or otherwise
    if len(safe) <= LONGEST:
        return safe
    return f"{safe[:LONGEST]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def printable(text: str) -> str:
    """Text that an evaluator or a log has given, as a terminal may show it: control characters do nothing."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def displayed(text: str) -> str:
    """The same for `rich`, in which square brackets mean something."""
    from rich.markup import escape

    return escape(printable(text))
