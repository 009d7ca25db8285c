"""Quoting of texts that others have chosen: names of runs, studies and files, errors of user code. One function per
way out; each module that writes for a shell, a terminal, a table or a page takes it from here.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from numbers import Real
from typing import Any

LONGEST_FILE_NAME = 80  # characters
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also full-width signs
_NOT_IN_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def file_name(name: str, otherwise: str = "objective") -> str:
    """A name with whatever a file name should not hold replaced; never empty, hidden, or a path."""
    safe = re.sub(r"[^\w.+-]+", "_", name).strip("._") or otherwise
    if len(safe) <= LONGEST_FILE_NAME:
        return safe
    return f"{safe[:LONGEST_FILE_NAME]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def printable(text: str) -> str:
    """A text for a terminal: control characters, bidirectional overrides and halves of surrogates are spelt out."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def markup(text: object) -> str:
    """A text for `rich`, in which square brackets mean something."""
    from rich.markup import escape as escape_markup

    shown = printable(str(text))
    ending = len(shown) - len(shown.rstrip("\\"))
    # A tag may follow: `rich` doubles a single backslash before it, and leaves longer runs to be halved.
    return escape_markup(shown) + "\\" * (ending if ending > 1 else 0)


def shell_command(words: Iterable[object]) -> str:
    """A command line that a POSIX shell splits into exactly these words, on one line that a terminal shows as it is.

    Words with control characters become `$'...'`, which bash, zsh and ksh read.
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: object) -> str:
    text = str(word)
    if text.isprintable():
        return shlex.quote(text)
    raw = text.encode(errors="surrogateescape")
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\{b:03o}" for b in raw) + "'"


def shell_completion(text: str, typed: str) -> str | None:
    """Return the replacement that bash or zsh needs to complete a word to a text, with nothing in it expanded.

    Args:
        typed: the word on the command line, perhaps with an opening quote that is not closed yet.

    Returns:
        None if no quoting can hold the text: names with control characters, and `!` in double quotes.
    """
    if not text.isprintable():
        return None
    if typed.startswith("'"):
        return text.replace("'", r"'\''")
    if typed.startswith('"'):
        return None if "!" in text else re.sub(r'([\\"$`])', r"\\\1", text)
    return re.sub(r"([^\w%+,./:=@-])", r"\\\1", text)


def unquoted(word: str) -> str:
    """A word that is being typed, without the quotes and backslashes that the shell takes away."""
    if word[:1] in ("'", '"'):
        inner = word[1:]
        return inner.rstrip("'") if word[0] == "'" else re.sub(r'\\([\\"$`])', r"\1", inner.rstrip('"'))
    return re.sub(r"\\(.?)", r"\1", word)  # a common beginning of several completions may end in a backslash


def tcl_word(text: str) -> str:
    """A word of Tcl that is exactly a text: in braces, or escaped where these could end early or not all is ASCII."""
    if text.isascii() and text.isprintable() and not set(text) & set("{}\\"):
        return f"{{{text}}}"
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_AS_IT_IS = {int, float, bool, type(None)}  # most cells; to ask `Real` about each is slow


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table as CSV, as pandas writes it, in which no spreadsheet finds a formula. Numbers stay numbers."""
    writer = csv.writer(_Echo(), lineterminator="\n")
    every = chain((columns,), rows)
    return (writer.writerow([c if type(c) in _AS_IT_IS else csv_cell(c) for c in row]) for row in every)


def csv_cell(cell: object) -> object:
    """A cell of a table: texts that a spreadsheet would take for a formula begin with an apostrophe."""
    if isinstance(cell, Real):
        return cell
    text = str(cell).replace("\0", "\\0").replace("\r", "\\r")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def html_text(text: object) -> str:
    """A text for HTML and SVG, between tags and in attributes; what XML does not have or turns text around is spelt
    out."""
    return escape(_NOT_IN_XML.sub(lambda found: repr(found[0])[1:-1], str(text)))


def script_json(value: Any) -> str:
    """JSON that may stand in a `<script>`: nothing in it ends or begins a tag or a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
