"""A design as files that someone else can build from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import StudyError
from allo_dse.eval.equivalence.exported import PROGRAM
from allo_dse.eval.hardware.design_folder import (
    BUILD,
    FOLDING,
    GOLDEN,
    HLS,
    design_files,
    json_text,
    not_taken,
    write_files,
)
from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from ..store.record import Verification
from .explain import design_layouts

if TYPE_CHECKING:
    from allo_dse.backends.hls.project import HlsProject
    from allo_dse.eval.program.observe import Inputs
    from allo_dse.mapper.place.placed_design import Infeasible, PlacedDesign
    from allo_dse.mapper.program import Program
    from allo_dse.space.design import Design

# Files that not every design has: those of an earlier export must not stay beside another design's.
_SOMETIMES = {BUILD, FOLDING, PROGRAM, GOLDEN, "mapping_primitives.json", "placement.json", "placement.svg"}


def export_design(  # noqa: PLR0913
    study: StudySpec,
    candidate: Candidate,
    *,
    params: Mapping[str, Any],
    metrics: Mapping[str, Any],
    values: Mapping[str, float],
    explanation: str,
    verification: Verification | None,
    placement: PlacedDesign | Infeasible | None,
    directory: Path,
) -> list[Path]:
    """Write the mapping, its placement, parameters, metrics, an explanation, and a build script or an HLS project."""
    if directory.exists() and not directory.is_dir():
        raise StudyError(f"{directory} is a file", hint="a design is written into a folder of its own")
    design = candidate.design
    facts = {"genes": candidate.genes, "predicted": dict(values), **_layouts(design)}
    if verification is not None:
        facts["verification"] = {"ok": verification.ok, "message": verification.message}
    files = design_files(design, reference=study.reference, verify_with=study.verify_with, facts=facts, hls=False)
    notes = [f"Not taken by Allo: {note}.\n" for note in not_taken(files)]
    files |= {
        "parameters.json": json_text(params),
        "metrics.json": json_text(dict(metrics)),
        "explanation.txt": "".join([explanation, "\n", *notes]),
    }
    if study.source is not None and PROGRAM not in files:
        source = Path(study.source.file)
        files[source.name] = source.read_text()
    if placement is not None:
        files |= _placement_files(placement)
    for stale in _SOMETIMES - set(files):
        (directory / stale).unlink(missing_ok=True)
    shutil.rmtree(directory / HLS, ignore_errors=True)
    written = write_files(files, directory)
    if getattr(design.device, "family", None) == "fpga":
        written += _hls_project(study, design, metrics).write(directory / HLS)
    return written


def _hls_project(study: StudySpec, design: Design, metrics: Mapping[str, Any]) -> HlsProject:
    """The design's HLS project, at the stream depths that were solved for it."""
    from allo_dse.eval.hls.design_project import board_project

    return board_project(
        design,
        metrics.get("stream_depths"),
        reference=study.answers,
        verify_with=study.verify_with,
        inputs=None if study.inputs is None else partial(_slowest_first, study, metrics),
    )


def _slowest_first(study: StudySpec, metrics: Mapping[str, Any], program: Program) -> list[Inputs]:
    """The study's inputs for a program; first those that the design's latency is of."""
    from allo_dse.eval.program.observe import sets_of

    sets = sets_of(study.inputs, program)
    cycles = metrics.get("timed_on", {}).get("latency_cycles", [])
    slowest = cycles.index(max(cycles)) if len(cycles) == len(sets) else 0
    return [sets[slowest], *sets[:slowest], *sets[slowest + 1 :]]


def _layouts(design: Design) -> dict[str, Any]:
    """Where the layouts of tensors change, for designs in which they do."""
    choices = [choice.to_dict() for choice in design_layouts(design)]
    return {"layouts": choices} if choices else {}


def _placement_files(placement: PlacedDesign | Infeasible) -> dict[str, str]:
    from allo_dse.drawing.placements import placement_svg
    from allo_dse.mapper.place.placed_design import PlacedDesign

    if not isinstance(placement, PlacedDesign):
        return {}
    return {"placement.json": json_text(placement.to_dict()), "placement.svg": placement_svg(placement)}
