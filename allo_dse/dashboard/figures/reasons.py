"""Designs that are not feasible: in no more kinds than there are symbols."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..data.table.columns import Mask
from ..data.table.table import RunTable
from .style import PURPLE, Spec

_SYMBOLS = ("x-thin-open", "cross-thin-open", "asterisk-open", "y-up-open", "hash-open", "diamond-tall-open")
_SYMBOLS_3D = ("x", "cross", "diamond-open", "square-open", "circle-open")


class Kind(Struct, frozen=True):
    """Designs that are not feasible for the same reason, or for one of the rare ones."""

    name: str
    rows: Mask
    marker: Spec


def kinds_of(run: RunTable, *, plane: bool, dimmed: bool) -> list[Kind]:
    """The most frequent reasons of a run, and the others as one."""
    reason = run.column("reason")
    if reason is None or reason.numeric:
        return []
    symbols = _SYMBOLS if plane else _SYMBOLS_3D
    counts = np.bincount(reason.codes[reason.codes >= 0], minlength=len(reason.categories))
    ranked = [code for code in np.argsort(-counts, kind="stable").tolist() if counts[code]]
    few = ranked if len(ranked) <= len(symbols) else ranked[: len(symbols) - 1]
    groups = [(reason.categories[code], [code]) for code in few]
    if rest := ranked[len(few) :]:
        groups.append((f"{len(rest)} other reasons", rest))
    look: Spec = {"size": 7 if plane else 3, "color": PURPLE, "opacity": 0.3 if dimmed else 0.7}
    look["line"] = {"color": PURPLE, "width": 1}
    found = []
    for symbol, (name, codes) in zip(symbols, groups, strict=False):
        rows = np.isin(reason.codes, codes)
        failed = run.columns["status"].value(int(rows.argmax())) == "failed"
        found.append(Kind(f"{'failed' if failed else 'infeasible'}: {name}", rows, {**look, "symbol": symbol}))
    return found
