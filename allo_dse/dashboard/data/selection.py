"""The selection that all views share. It is a query, so its cost does not grow with the number of designs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from allo_dse.common.records import Frozen, JsonObject

from .columns import Floats, Mask
from .table import RunTable

# Formats for people: units from the names of metrics, four significant digits.


_UNITS = {
    "_gb_s": "GB/s",
    "_us": "µs",
    "_ms": "ms",
    "_ns": "ns",
    "_s": "s",
    "_cycles": "cycles",
    "_bytes": "bytes",
    "_gops": "Gop/s",
    "_mhz": "MHz",
    "_ghz": "GHz",
    "_w": "W",
    "_mj": "mJ",
}
_WHOLE = {
    "utilization": "share",
    "bram18": "blocks",
    "uram": "blocks",
    "dsp": "slices",
    "lut": "LUTs",
    "ff": "flip-flops",
    "at": "s",
    "seconds": "s",
    "number": "trial",
}


def unit(name: str) -> str:
    """The unit of a column, from its name; empty when there is none."""
    if name.startswith("bound.") or name.endswith("_utilization"):
        return "share"
    if name in _WHOLE:
        return _WHOLE[name]
    return _UNITS.get(_suffix(name), "")


def _suffix(name: str) -> str:
    return next((suffix for suffix in _UNITS if name.endswith(suffix)), "")


def label(name: str) -> str:
    """A column's name with its unit: `latency_us` is "latency (µs)"."""
    measure = unit(name)
    if name == "pe_count":
        return "processing elements"  # cores of an NPU, processes of an FPGA
    if not measure:
        return name
    plain = {"at": "wall time", "seconds": "evaluation time"}.get(name, name.removesuffix(_suffix(name)))
    return f"{plain.replace('_', ' ')} ({measure})"


def text(value: object) -> str:
    """A value: four significant digits, thousands separated, no exponent where it can be read without."""
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.3e}"


class Selection(Frozen):
    """Designs that satisfy everything that is given; without anything given, nothing is selected.

    Attributes:
        ranges: per column intervals; a value must lie in one of them.
        keys: the designs themselves, as `Board.text` writes them.
    """

    ranges: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    keys: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ranges or self.keys)

    @property
    def columns(self) -> list[str]:
        """The columns it depends on."""
        return [name for name, _ in self.ranges]

    def rows(self, table: RunTable, numbers: Callable[[str], Floats] | None = None, run: int = 0) -> Mask:
        """Per row of a run whether it is selected.

        Args:
            numbers: a column as the numbers that ranges were drawn on; by default the run's own.
            run: which of the board's runs it is.
        """
        numbers = numbers or table.numbers
        if not self:
            return np.zeros(len(table), bool)
        mask = np.ones(len(table), bool)
        for name, intervals in self.ranges:
            values = numbers(name)
            mask &= np.logical_or.reduce([(values >= low) & (values <= high) for low, high in intervals])
        if self.keys:
            picked = np.zeros(len(table), bool)
            mine = (key.removeprefix(f"{run}:") for key in self.keys if key.startswith(f"{run}:"))
            picked[[table.row_of[key] for key in mine if key in table.row_of]] = True
            mask &= picked
        return mask

    def to_dict(self) -> JsonObject:
        """For the browser."""
        return {
            "ranges": {name: [list(i) for i in intervals] for name, intervals in self.ranges},
            "keys": sorted(self.keys),
        }

    @staticmethod
    def from_dict(values: JsonObject | None) -> Selection:
        """Back from the browser."""
        values = values or {}
        return Selection(
            tuple(
                (name, tuple((float(low), float(high)) for low, high in intervals))
                for name, intervals in (values.get("ranges") or {}).items()
            ),
            frozenset(values.get("keys") or ()),
        )

    def __str__(self) -> str:
        """For a person."""
        parts = [
            " or ".join(f"{name} {text(_short(low))} to {text(_short(high))}" for low, high in intervals)
            for name, intervals in self.ranges
        ]
        if self.keys:
            parts.append(f"{len(self.keys)} picked design{'s' if len(self.keys) > 1 else ''}")
        return ", ".join(parts)


def _short(value: float) -> float:
    """Four significant digits of a value that came from a position on the screen."""
    return float(f"{value:.4g}")
