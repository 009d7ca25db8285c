"""Source and loops of the designs on a front, kept in the run directory: readers need not compile the program."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import JsonObject

from ..declare.function_text import function_of

if TYPE_CHECKING:
    from allo_dse.space.design import Design

    from .result import Result

FRONT_CODE = "front_code.json"
MOST_DESIGNS = 64
LIMITS = {"target": "as asked", "report": "as reported by the HLS tool"}


def front_code(result: Result) -> str:
    """Return the text of the file: the source of the study's program, and pipelined loops by design (FPGA)."""
    loops: dict[str, list[JsonObject]] = {}
    for best in result.front[:MOST_DESIGNS] if result.study.device.family == "fpga" else ():
        try:
            loops[best.key] = loops_of(best.design)
        except AlloDseError:  # data decides on the control of a loop
            continue
    return json.dumps({"source": _source(result.study.program), "loops": loops}, indent=1) + "\n"


def loops_of(design: Design) -> list[JsonObject]:
    """The pipelined loops of an FPGA design, in the order of its tasks.

    Raises:
        AlloDseError: where control depends on data.
    """
    from allo_dse.backends.fpga.mapping import FpgaMapping

    mapping = FpgaMapping.of(design)
    return [
        {
            "task": cls.name if not pid else f"{cls.name} {list(pid)}", "loop": " ".join(filter(None, loop.names)),
            "trips": loop.trips, "ii": loop.ii, "depth": loop.depth, "cycles": loop.cycles, "times": loop.times,
            "limit": LIMITS.get(loop.limit, loop.limit),
        }
        for cls, pid, *_ in mapping.shared.alike(mapping.run)
        for loop in mapping.cost(cls, pid).loops
    ]  # fmt: skip


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
