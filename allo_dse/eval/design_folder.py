"""A design as a folder of files for other tools: its decisions, its mapping, and sources to build from."""

from __future__ import annotations

import json
from pathlib import Path

from allo_dse.common.files import write_whole
from allo_dse.common.records import JsonObject
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from .backend import Artifacts, Files, Sources, backend_of
from .inputs import directions

MAX_JSON_PRIMITIVES = 5000
MOST_GOLDEN_ELEMENTS = 1 << 18
"""Most elements of all tensors for which the results of a reference without source are computed here."""

DESIGN = "design.json"


def write_files(files: Files, folder: Path) -> list[Path]:
    """Write files into a folder, and return them. With `design.json`, those of an earlier design are removed."""
    for stale in _files_of(folder / DESIGN) - files.keys() if DESIGN in files else ():
        if (folder / stale).resolve().is_relative_to(folder.resolve()):  # people edit the list
            (folder / stale).unlink(missing_ok=True)
    written = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        written.append(path)
    return written


def _files_of(facts: Path) -> set[str]:
    """Return the files that `design.json` lists; none if there is no such file."""
    try:
        return set(json.loads(facts.read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def design_files(
    design: Design, artifacts: Artifacts | None = None, *, facts: JsonObject | None = None, more: Files | None = None
) -> Files:
    """Return `design.json`, `parameters.json`, the mapping, and the sources for the device's tools.

    Args:
        artifacts: sources as the backend made them (see `artifacts_of`); by default without a reference.
        facts: further entries of `design.json`.
        more: further files.
    """
    made = artifacts_of(design) if artifacts is None else artifacts
    files: Files = {
        "mapping.py": design.vmg.mapping_source(),
        "parameters.json": json_text(design.program.params),
    }
    if design.program.task_count <= MAX_JSON_PRIMITIVES:
        files["mapping_primitives.json"] = json.dumps(design.mapping_primitives) + "\n"
    files |= made.files | (more or {})
    said: JsonObject = {"key": design.key, **design.to_dict(), **(facts or {}), **made.facts, "files": [*files, DESIGN]}
    return {**files, DESIGN: json_text(said)}


def artifacts_of(design: Design, asked: Sources | None = None) -> Artifacts:
    """Return the sources that the tools of a design's device build from."""
    return backend_of(design.device).artifacts(design, asked or Sources())


def json_text(values: object) -> str:
    """Return values as the text of an indented JSON file."""
    return json.dumps(values, indent=2, default=str) + "\n"


def tensor_facts(program: Program) -> list[JsonObject]:
    """Return the facts about a program's tensors that a script needs to feed them."""
    written = directions(program)[1]
    return [
        {
            "name": tensor.name,
            "dtype": str(numpy_dtype(tensor.dtype)),
            "shape": list(tensor.shape),
            "float": tensor.dtype.is_float,
            "written": tensor.name in written,
        }
        for tensor in program.tensors
    ]
