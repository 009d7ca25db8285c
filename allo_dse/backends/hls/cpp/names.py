"""Names of programs as C++ identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_RESERVED = frozenset(
    word
    for line in (
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class",
        "compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype",
        "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline",
        "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public",
        "register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch",
        "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile",
        "wchar_t while xor xor_eq main std hls allo half ap_int ap_uint ap_fixed ap_ufixed stdin stdout stderr errno",
        "NAN INFINITY TASK int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t abs exp log log2",
        "log10 sqrt sin cos tan tanh pow floor ceil round erf gamma j0 j1 jn y0 y1 yn index time clock read write",
        "signal random rand exit abort remove rename div free malloc",
    )
    for word in line.split(" ")
)
"""Keywords, and names of the libraries that a kernel includes."""
_MOST_DIMS = 64


def counter_of(dim: int) -> str:
    """The variable of a loop over a dimension."""
    return "ijklmn"[dim] if dim < 6 else f"n{dim}"


PIDS = frozenset(f"p{axis}" for axis in range(_MOST_DIMS))
LOCALS = PIDS | {"t", "tile", "lane", "word", "element", "place", "way", "shape", "asked", "came", "there", "memory"}
LOCALS |= {counter_of(dim) for dim in range(_MOST_DIMS)}
"""Variables of functions around those of tasks, which would hide names of programs."""


def identifier(name: str) -> str:
    """A valid C++ identifier that resembles `name`; equal for equal names."""
    text = re.sub(r"[^A-Za-z0-9_]", lambda match: f"u{ord(match.group()):x}", name) or "x"
    text = re.sub(r"__+", "_", text)
    if text[0].isdigit() or (text[0] == "_" and (len(text) == 1 or text[1].isupper())):
        text = f"x{text}"
    return f"{text}_" if text in _RESERVED else text


class Names:
    """Identifiers of one scope, each given out once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A C++ block: names given out inside are free again behind it."""
        taken, following = set(self._taken), dict(self._next)
        yield
        self._taken, self._next = taken, following

    def new(self, wanted: str) -> str:
        """`wanted` as an identifier, with a number behind it where that is taken."""
        base = identifier(wanted)
        name = base
        while name in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name
