"""A design as files that someone else can build from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.space.space import Candidate

from ..declare.spec import StudySpec
from .explain import design_layouts

if TYPE_CHECKING:
    from allo_dse.backends.hls.project import HlsProject
    from allo_dse.mapper.place.result import Infeasible, PlacedDesign
    from allo_dse.space.design import Design

MAX_JSON_PRIMITIVES = 5000
HLS = "hls"
"""The directory of an FPGA design's HLS project."""

# Files that not every design has: those of an earlier export must not stay beside another design's.
_SOMETIMES = {"build.py", "mapping_primitives.json", "placement.json", "placement.svg"}

_BUILD = '''"""Build this design with Allo for an AMD NPU.

    python build.py

Needs Allo with its AIE backend, and whatever the file that defines the program imports (a copy lies beside this one).
`mapping.py` holds the mapping; the parameters below instantiate the program.
Predicted: {predicted}
"""

import allo.dataflow as df

from mapping import mapping_primitives

{load}

PARAMETERS = {params}


def build():
    return df.build(
        {instantiate},
        target="aie",
        mapping_primitives=mapping_primitives(),
        device_type={device!r},
    )


if __name__ == "__main__":
    build()
'''


def export_design(
    study: StudySpec,
    candidate: Candidate,
    *,
    params: Mapping[str, Any],
    metrics: Mapping[str, Any],
    values: Mapping[str, float],
    explanation: str,
    placement: PlacedDesign | Infeasible | None,
    directory: Path,
) -> list[Path]:
    """Write the mapping, its placement, parameters, metrics, an explanation, and a build script or an HLS project."""
    design, hls = candidate.design, None
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "mapping.py": design.vmg.mapping_source(),
        "parameters.json": _json(params),
        "metrics.json": _json(dict(metrics)),
        "design.json": _json({"key": candidate.key, "genes": candidate.genes, **design.to_dict(), **_layouts(design)}),
        "explanation.txt": explanation + "\n",
    }
    if getattr(design.device, "family", None) == "fpga":
        hls = _hls_project(study, design, metrics)
    else:
        files["build.py"] = _build_script(study, candidate, values)
    if study.source is not None:
        source = Path(study.source.file)
        files[source.name] = source.read_text()
    if design.program.task_count <= MAX_JSON_PRIMITIVES:
        files["mapping_primitives.json"] = json.dumps(design.mapping_primitives) + "\n"
    if placement is not None:
        files |= _placement_files(placement)
    for stale in _SOMETIMES - set(files):
        (directory / stale).unlink(missing_ok=True)
    shutil.rmtree(directory / HLS, ignore_errors=True)
    written = []
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        written.append(path)
    return [*written, *(hls.write(directory / HLS) if hls is not None else [])]


def _hls_project(study: StudySpec, design: Design, metrics: Mapping[str, Any]) -> HlsProject:
    """The design's HLS project, at the stream depths that were solved for it."""
    from allo_dse.eval.hls.design import board_project

    return board_project(design, metrics.get("stream_depths"), reference=study.reference, verify_with=study.verify_with)


def _layouts(design: Design) -> dict[str, Any]:
    """Where the layouts of tensors change, for designs in which they do."""
    choices = [choice.to_dict() for choice in design_layouts(design)]
    return {"layouts": choices} if choices else {}


def _placement_files(placement: PlacedDesign | Infeasible) -> dict[str, str]:
    from allo_dse.drawing import placement_svg
    from allo_dse.mapper.place.result import PlacedDesign

    if not isinstance(placement, PlacedDesign):
        return {}
    return {"placement.json": _json(placement.to_dict()), "placement.svg": placement_svg(placement)}


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, default=str) + "\n"


def _build_script(study: StudySpec, candidate: Candidate, values: Mapping[str, float]) -> str:
    params = candidate.params
    simple = {n: v for n, v in params.items() if isinstance(v, int | float | str | bool)}
    scope = getattr(study.program, "__globals__", {})
    objects = {n: next((g for g, x in scope.items() if x is v), None) for n, v in params.items() if n not in simple}
    function = getattr(study.program, "__name__", "program")
    function = function if function.isidentifier() else "program"
    imported = sorted({function, *(g for g in objects.values() if g)})
    if study.source is not None:
        load = f"from {Path(study.source.file).stem} import {', '.join(imported)}"
    else:
        load = f"# from ... import {', '.join(imported)}: where the program of the study {study.name!r} is defined"
    arguments = ["**PARAMETERS"] if simple else []
    arguments += [f"{n}={g or repr(str(params[n]))}" for n, g in objects.items()]
    predicted = ", ".join(f"{name} {value:g}" for name, value in values.items())
    return _BUILD.format(
        predicted=predicted,
        load=load,
        params=repr(simple),
        instantiate=f"{function}({', '.join(arguments)})" if params else function,
        device=candidate.design.device.name,
    )
