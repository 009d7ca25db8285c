"""The address of a page says what it shows: a reload shows the same, and so does the link where it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from allo_dse.common.aliases import JsonObject

_TWO = msgspec.Meta(min_length=2, max_length=2)
_Pair = Annotated[list[float], _TWO]


class _Selection(TypedDict):
    """`Selection.to_dict`, as it comes from elsewhere."""

    ranges: dict[str, list[_Pair]]
    lasso: tuple[str, str, list[_Pair]] | None
    keys: list[str]


class _Zoom(TypedDict):
    x: str
    y: str
    log: list[str]
    spans: Annotated[list[_Pair | None], _TWO]


class _Sort(TypedDict):
    colId: str
    sort: Literal["asc", "desc"]


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("design", "reference", "filter", "x", "y", "z", "color"), str),
    **dict.fromkeys(("log", "show"), list[str]),
    "runs": list[int],
    "selection": _Selection,
    "pair": Annotated[list[str], _TWO],
    "sort": list[_Sort],
    "zoom": _Zoom,
}
"""What of the state an address has, in this order. Texts stand there as they are, the rest as JSON."""

LONGEST = 2000
"""Characters of a query; what would make it longer is left out. Of an address with more than 4,096 browsers tell the
server nothing."""


def address_of(state: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """The query of a page in a state; "" where it shows what it shows `first`."""
    query, parts = "", dict[str, str]()
    for name, kind in _KINDS.items():
        value = state[name]
        if value is None or value == first[name]:
            continue
        longer = {**parts, name: value if kind is str else json.dumps(value, separators=(",", ":"))}
        made = "?" + urlencode(longer, quote_via=quote, safe=":,")
        if len(made) <= LONGEST:
            query, parts = made, longer
    return query


def values_of(query: str) -> JsonObject:
    """The inverse: what a query says of the state, without what makes no sense."""
    found: JsonObject = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        kind = _KINDS.get(name)
        try:
            if kind is not None:
                found[name] = text if kind is str else msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError:
            continue
    return found
