"""Tables that fit the terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def fitting(console: Console, build: Callable[[int], Table], optional: int) -> Table:
    """A table with as many of its optional columns as there is room for; a list of its cells where not even the others
    fit, which would break the numbers.

    Args:
        build: makes it with the first so many of them.
    """
    natural = console.options.update(max_width=1 << 16)

    def fits(table: Table) -> bool:
        return Measurement.get(console, natural, table).maximum <= console.width

    for count in range(optional, -1, -1):
        table = build(count)
        if fits(table):
            return table
    for column in table.columns:
        column.header = str(column.header).replace("_", "_\n")
    return table if fits(table) else _listed(table)


def _listed(table: Table) -> Table:
    """The rows one below the other, with a line for each cell that is not empty."""
    listed = Table(
        title=table.title, title_justify="left", title_style="bold", caption=table.caption, caption_justify="left",
        box=None, show_header=False, pad_edge=False,
    )  # fmt: skip
    listed.add_column(style="dim", overflow="fold")
    listed.add_column(overflow="fold")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, cells, strict=True):
            if cell:
                listed.add_row(str(column.header).replace("\n", ""), cell)
        listed.add_row()
    return listed


def left_out(table: Table, rows: int, columns: int) -> None:
    """Say below a front what of it `pareto.csv` has beside: so many designs, and parameters."""
    more = [f"{rows} more"] if rows else []
    more += [f"{columns} parameter{'s' if columns > 1 else ''}"] if columns else []
    if more:
        table.caption = f"{' and '.join(more)} in pareto.csv"
        table.caption_justify = "left"
