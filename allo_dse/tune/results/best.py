"""Designs that a run found, to look at and to build."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.files import write_whole
from allo_dse.common.notebooks import columns_html, folded_html, table_html
from allo_dse.common.records import Frozen, JsonObject
from allo_dse.eval.backend import Files, Placement, Sources, backend_of
from allo_dse.eval.design_folder import artifacts_of, design_files, json_text, write_files
from allo_dse.eval.equivalence.exported import PROGRAM
from allo_dse.eval.evaluator import Metrics
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..store.record import Record, Verification
from .explain import explain

if TYPE_CHECKING:
    from allo_dse.eval.execute.observation import Inputs
    from allo_dse.mapper.program import Program
    from allo_dse.space.design import Design


def _slowest_first(study: StudySpec, metrics: Mapping[str, Any], program: Program) -> list[Inputs]:
    """Return the study's inputs for a program, first the set that determines the design's latency."""
    from allo_dse.eval.execute.observation import sets_of

    sets = sets_of(study.inputs, program)
    cycles = metrics.get("timed_on", {}).get("latency_cycles", [])
    slowest = cycles.index(max(cycles)) if len(cycles) == len(sets) else 0
    return [sets[slowest], *sets[:slowest], *sets[slowest + 1 :]]


MOST_SHOWN = 20
"""Designs of a front that a notebook lists."""


class BestDesign(Frozen, eq=False, dict=True):
    """A design that a run found, with its metrics.

    Attributes:
        run_dir: directory of its placement.
        near: for the fastest design, a text on the designs that predictions cannot tell from it.
        verification: whether its numbers are correct, and how far rounding takes them off.
    """

    study: StudySpec
    record: Record
    run_dir: Path | None = None
    near: str = ""
    verification: Verification | None = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value:,.6g}" for name, value in self.values.items())
        return f"BestDesign({self.key[:8]}, {values})"

    def _repr_html_(self) -> str:
        """Values, parameters and metrics, graph and placement, in a notebook."""
        rows = {"design": self.key, **self.values, **self.params, **self.metrics}
        parts = [table_html(rows), *(folded_html(title, picture) for title, picture in self._pictures())]
        return "".join(parts)

    def _pictures(self) -> Iterator[tuple[str, str]]:
        """Yield drawings of the program; none if the study's file has changed since the run."""
        with suppress(AlloDseError):
            yield "graph", self.design.vmg._repr_html_()
            if self.placement is not None and self.placement.placed:
                yield "placement", self.placement.drawn()

    @cached_property
    def candidate(self) -> Candidate:
        """The design and the program's parameters, rebuilt from the log."""
        return self.study.candidate(self.record)

    @property
    def design(self) -> Design:
        """The `Design`."""
        return self.candidate.design

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def params(self) -> JsonObject:
        """The program's parameters."""
        return dict(self.record.params)

    @property
    def metrics(self) -> Metrics:
        return Metrics(**(self.record.metrics or {}))

    @property
    def values(self) -> dict[str, float]:
        """The objectives' values."""
        return {o.name: o.value(self.metrics) for o in self.study.objectives}

    @cached_property
    def placement(self) -> Placement | None:
        """Tiles and routes on the device's array, or why there are none; None for devices without an array."""
        return placement_of(self.run_dir, self.design, self.study.place)

    @property
    def mapping_primitives(self) -> list[tuple[str, list[Any]]]:
        """The `chain` and `bundle` sequence that Allo takes."""
        return self.design.mapping_primitives

    def explain(self) -> str:
        """The design in words."""
        verified = self.verification.explain() if self.verification is not None else ""
        return "; ".join(filter(None, (explain(self.design, self.record.metrics or {}), self.near, verified)))

    def export(self, directory: str | Path) -> list[Path]:
        """Write everything needed to build the design into a directory; returns the files.

        They are the mapping, its placement, parameters, metrics, an explanation, and a build script or an HLS project.
        """
        where, study, metrics = Path(directory), self.study, self.metrics
        if where.exists() and not where.is_dir():
            raise StudyError(f"{where} is a file", hint="a design is written into a folder of its own")
        facts: JsonObject = {"genes": self.candidate.genes}
        facts["predicted"] = {} if self.record.status == "failed" else self.values
        if self.verification is not None:
            verdict = structs.asdict(self.verification).items()
            facts["verification"] = {
                name: value for name, value in verdict if name not in ("key", "seconds", "against")
            }
        inputs = None if study.inputs is None else partial(_slowest_first, study, metrics)
        made = artifacts_of(self.design, Sources(study.answers, study.verify_with, metrics, inputs))
        more: Files = {
            "parameters.json": json_text(self.params),
            "metrics.json": json_text(dict(metrics)),
            "explanation.txt": "\n".join([self.explain(), *made.notes, ""]),
        }
        if study.source is not None and PROGRAM not in made.files:
            source = Path(study.source.file)
            more[source.name] = source.read_text()
        if (placement := self.placement) is not None and placement.placed:
            more |= {"placement.json": json_text(placement.to_dict()), "placement.svg": placement.drawn()}
        return write_files(design_files(self.design, made, facts=facts, more=more), where)


class Front(list[BestDesign]):
    """The designs on the Pareto front, best in the first objective first."""

    def __repr__(self) -> str:
        names = list(self[0].values) if self else []
        spans = [f"{name} {self._span(name)}" for name in names]
        return f"Front({len(self):,} designs{''.join(f', {span}' for span in spans)})"

    def _span(self, name: str) -> str:
        values = [design.values[name] for design in self]
        low, high = (f"{value:,.6g}" for value in (min(values), max(values)))
        return low if low == high else f"{low} to {high}"

    def _repr_html_(self) -> str:
        """A plot of the first two objectives, and a table."""
        if not self:
            return "<p>no design satisfies all limits and constraints</p>"
        names = list(self[0].values)
        rows = [{"design": d.key[:8], **d.values, **d.params} for d in self[:MOST_SHOWN]]
        more = len(self) - len(rows)
        return self._plot(names[:2]) + columns_html(rows) + (f"<p>{more:,} more</p>" if more else "")

    def _plot(self, names: list[str]) -> str:
        if len(names) < 2:
            return ""
        from allo_dse.drawing import points_svg

        points = [(d.values[names[0]], d.values[names[1]]) for d in self]
        return points_svg(points, names[0], names[1], [repr(design) for design in self])


# Placements are solved once and kept in the run directory, where run, export, page and report share them:
#
#     runs/<study>/placements/<key of the design>.json


PLACEMENTS = "placements"
VERSION = 3
"""Version of the files and of the solver's results: placements of another version are solved again."""


def placement_of(
    directory: Path | None, design: Design, solve: Callable[[Design], Placement | None]
) -> Placement | None:
    """The placement of a design, from the run directory or solved now.

    Args:
        directory: of the run; None for designs of no run.
        solve: finds it; None for devices without an array.
    """
    if directory is None:
        return solve(design)
    file = directory / PLACEMENTS / f"{design.key}.json"
    known = _read(file, design)
    if known is not None:
        return known
    found = solve(design)
    if found is not None and found.proven:
        with suppress(OSError):  # a directory that cannot be written keeps nothing
            file.parent.mkdir(exist_ok=True)
            write_whole(file, json.dumps({"version": VERSION, "placement": found.to_dict()}) + "\n")
    return found


def _read(file: Path, design: Design) -> Placement | None:
    """Read a placement; None if there is no file, or this version did not write it."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return backend_of(design.device).placement_from_dict(data["placement"]) if data["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
