"""Tables that fit the terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def fitting(console: Console, build: Callable[[int], Table], optional: int) -> Table:
    """A table with as many of its optional columns as there is room for.

    Args:
        build: makes it with the first so many of them.
    """
    natural = console.options.update(max_width=1 << 16)
    for count in range(optional, 0, -1):
        table = build(count)
        if Measurement.get(console, natural, table).maximum <= console.width:
            return table
    return build(0)


def left_out(table: Table, rows: int, columns: int) -> None:
    """Say below a front what of it `pareto.csv` has beside: so many designs, and parameters."""
    more = [f"{rows} more"] if rows else []
    more += [f"{columns} parameter{'s' if columns > 1 else ''}"] if columns else []
    if more:
        table.caption = f"{' and '.join(more)} in pareto.csv"
        table.caption_justify = "left"
