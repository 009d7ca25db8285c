"""Placements of a run's designs, solved once and kept in the run directory.

    runs/<study>/placements/<key of the design>.json

Run, export, page and report share them. If the file is missing, e.g. in an older run, the placement is solved, and kept
if the directory is writable.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from allo_dse.common.files import write_whole
from allo_dse.eval.backend import Placement, backend_of

if TYPE_CHECKING:
    from allo_dse.space.design import Design

PLACEMENTS = "placements"
VERSION = 2
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
        _write(file, found)
    return found


def _read(file: Path, design: Design) -> Placement | None:
    """Read a placement; None if there is no file, or this version did not write it."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return backend_of(design.device).placement_from_dict(data["placement"]) if data["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(file: Path, found: Placement) -> None:
    """Keep a placement. A directory that cannot be written keeps nothing."""
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        write_whole(file, json.dumps({"version": VERSION, "placement": found.to_dict()}) + "\n")
