"""A window on a running study, and how its numbers are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from allo_dse.common.quoting import markup
from allo_dse.common.records import Frozen, JsonObject

if TYPE_CHECKING:
    from ..declare.spec import StudySpec
    from ..results.result import Result
    from ..search.budget import Budget
    from ..search.proposer import Proposer
    from ..search.screening import Screen
    from ..search.tally import Tally
    from ..store.certificate import Certificate

# Numbers for people.


def format_value(value: float | None) -> str:
    """Format four significant digits, without an exponent if that is readable."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


class RunView(Frozen):
    """A window on a running study; everything in it is kept up to date by others.

    Attributes:
        before: trials of earlier runs.
        result: makes the result so far.
    """

    study: StudySpec
    tally: Tally
    screen: Screen
    budget: Budget
    run_dir: Path
    proposer: Proposer
    before: int
    result: Callable[[str], Result]

    @property
    def certificate(self) -> Certificate | None:
        """Decisions about the space so far; None if the sampler makes none."""
        return self.proposer.certificate()

    @property
    def per_second(self) -> float:
        """Evaluated designs per second of this run."""
        return (self.tally.done - self.before) / max(self.budget.elapsed, 1e-9)

    @property
    def feasible_share(self) -> float | None:
        """Share of all distinct proposed designs that satisfied every limit and constraint."""
        proposed = self.tally.done + self.screen.invalid
        return self.tally.statuses["ok"] / proposed if proposed else None

    @property
    def killers(self) -> list[tuple[str, int]]:
        """Reasons that ruled designs out, with counts; the largest first."""
        failed = {"evaluator failed": self.tally.statuses["failed"]} if self.tally.statuses["failed"] else {}
        return (self.screen.killed + self.tally.infeasible + Counter(failed)).most_common()

    def remaining_seconds(self, certificate: Certificate | None) -> float | None:
        """Estimate the time to the end of the run; an upper bound if it ends when the last design is decided."""
        done_now = self.tally.done - self.before
        spent = self.budget.remaining_seconds(done_now, self.tally.done)
        if certificate is None:
            return spent
        closed = certificate.closing_seconds(self.budget.elapsed, done_now)
        return min((seconds for seconds in (spent, closed) if seconds is not None), default=None) if done_now else None

    def to_dict(self) -> JsonObject:
        """For machines."""
        tally, front, certificate = self.tally, self.tally.front, self.certificate
        return {
            "study": self.study.name,
            "trials": tally.done,
            "target": self.budget.trials,
            "designs_per_second": round(self.per_second, 2),
            "feasible_share": self.feasible_share,
            "ruled_out": dict(self.killers),
            "repeats": self.screen.repeats,
            "best": {o.name: tally.best_value(o) for o in tally.objectives},
            "front_size": len(front.keys),
            "hypervolume": front.hypervolume,
            "prediction": tally.correction.to_dict(),
            "hypervolume_reference": self.reference,
            "certificate": msgspec.to_builtins(certificate),
            "elapsed_seconds": round(self.budget.elapsed, 3),
            "remaining_seconds": self.remaining_seconds(certificate),
        }

    def remaining_words(self, certificate: Certificate | None) -> str:
        """The estimated time to the end of the run; empty when there is nothing to go by."""
        left = self.remaining_seconds(certificate)
        if left is None:
            return ""
        return f"{'at most ' if certificate is not None else ''}{format_duration(left)} left"

    @property
    def reference(self) -> dict[str, float] | None:
        """The hypervolume's reference point in the objectives' own units."""
        point = self.tally.front.reference
        if point is None:
            return None
        return {o.name: o.sign * v for o, v in zip(self.tally.objectives, point, strict=True)}


def progress_line(view: RunView) -> str:
    """Everything worth knowing, in one line."""
    tally, certificate = view.tally, view.certificate
    target = f"/{view.budget.trials}" if view.budget.trials is not None else ""
    if certificate is None:
        parts = [f"{tally.done}{target} designs", f"{view.per_second:.0f}/s"]
    else:
        parts = [certificate.progress, f"{tally.done} evaluated"]
    if view.feasible_share is not None:
        parts.append(f"{100 * view.feasible_share:.1f} % feasible")
    best = ((o.name, tally.best_value(o)) for o in tally.objectives)
    parts += [f"{name} {format_value(value)}" for name, value in best if value is not None]
    parts.append(f"front {len(tally.front.keys)}")
    if tally.front.hypervolume is not None:
        parts.append(f"hypervolume {tally.front.hypervolume:.4f}")
    if tally.correction.pairs:
        parts.append(f"measured {tally.correction.words}")
    if words := view.remaining_words(certificate):
        parts.append(words)
    return ", ".join(parts)


# Tables that fit the terminal.


def fitting(console: Console, build: Callable[[int], Table], optional: int) -> Table:
    """Return a table with as many optional columns as fit, or a list of its cells if the others do not fit.

    A narrower table would break numbers over lines.

    Args:
        build: makes the table with a number of optional columns.
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


def front_table(
    console: Console,
    title: str,
    names: tuple[Sequence[str], Sequence[str], Sequence[str]],
    rows: Sequence[tuple[str, Sequence[float | None], Sequence[object], Sequence[str]]],
    designs: int,
) -> Table:
    """The designs of a front. Parameters for which there is no room are left out.

    Args:
        title: what follows the number of designs.
        names: of the objectives, the parameters and the other columns.
        rows: per design a mark such as "knee", the objectives' values, the parameters, and the other cells.
        designs: on the front; the rows may be the first of them.
    """
    objectives, parameters, others = names

    def build(count: int) -> Table:
        heading = f"Pareto front: {designs} design{'' if designs == 1 else 's'}{title}"
        table = Table(title=heading, title_justify="left", title_style="bold", caption_justify="left")
        table.add_column("")
        for name in objectives:
            table.add_column(markup(name), justify="right", overflow="fold")
        for name in parameters[:count]:
            table.add_column(markup(name), justify="right", style="dim")
        for name in others:
            table.add_column(name, no_wrap=name in ("design", "checked"))
        for mark, values, params, cells in rows:
            shown = ("" if value is None else str(value) for value in params[:count])
            cells = [*map(format_value, values), *map(markup, shown), *map(markup, cells)]
            table.add_row(mark, *cells, style="bold" if mark else None)
        more = [f"{designs - len(rows)} more"] if designs > len(rows) else []
        if hidden := len(parameters) - count:
            more.append(f"{hidden} parameter{'s' if hidden > 1 else ''}")
        table.caption = f"{' and '.join(more)} in pareto.csv" if more else None
        return table

    return fitting(console, build, len(parameters))
