"""Exported designs read back: the program that Allo builds, folded by the mapping beside it."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allo_dse import lang
from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import load_program

PROGRAM, MAPPING = "program.py", "mapping.py"
"""The files of a design's folder that have its program, as Allo gets it, and its mapping."""


def exported_graph(folder: Path, params: Mapping[str, object] | None = None) -> VMG:
    """Return the folded graph of a design's folder. This executes its files.

    Args:
        params: of an instance of another size with the same mesh; by default those of the exported design.

    Raises:
        StudyError: if the folder has no program of its own, or no mapping.
        AlloDseError: for a program or a mapping that is not accepted.
    """
    path, mapping = folder / PROGRAM, folder / MAPPING
    for file in (path, mapping):
        if not file.is_file():
            hint = "designs for NPUs are exported with a program of their own"
            raise StudyError(f"{folder} has no {file.name}", hint=hint)
    lang.install()
    names = _run(path)
    region = names["region"]() if params is None else names[_maker(path)](**params)
    primitives = _run(mapping)["mapping_primitives"]()
    return load_program(region).vmg.apply(primitives)


def _run(file: Path) -> dict[str, Any]:
    """The names that a file defines."""
    try:
        return runpy.run_path(str(file))
    except AlloDseError:
        raise
    except Exception as error:  # whatever an edited file raises
        hint = "correct it, or export the design again"
        raise StudyError(f"{file} cannot be run: {type(error).__name__}: {error}", hint=hint) from error


def _maker(path: Path) -> str:
    """Return the function in which `region()` is called with the design's parameters."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "region":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    return call.func.id
    raise StudyError(f"{path} has a program without parameters", hint="it can be compared at its own size only")
