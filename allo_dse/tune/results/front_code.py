"""Source and loops of the designs on a front, kept in the run directory: readers need not compile the program."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import JsonObject
from allo_dse.eval.backend import backend_of

from ..declare.function_text import function_of

if TYPE_CHECKING:
    from .result import Result

FRONT_CODE = "front_code.json"
MOST_DESIGNS = 64


def front_code(result: Result) -> str:
    """Return the text of the file: the source of the study's program, and pipelined loops by design (FPGA)."""
    loops: dict[str, list[JsonObject]] = {}
    backend = backend_of(result.study.device)
    for best in result.front[:MOST_DESIGNS]:
        try:
            loops[best.key] = backend.loops(best.design)
        except AlloDseError:  # data decides on the control of a loop
            continue
    return json.dumps({"source": _source(result.study.program), "loops": loops}, indent=1) + "\n"


def read_front_code(run_dir: Path) -> JsonObject:
    """Contents of the file; empty if the run has none, or it is damaged."""
    try:
        found = json.loads((run_dir / FRONT_CODE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _source(program: Any) -> str:
    function = function_of(program)
    try:
        return "" if function is None else inspect.getsource(function)
    except (OSError, TypeError):
        return ""
