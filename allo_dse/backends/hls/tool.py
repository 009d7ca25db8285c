"""Running a written project with the vendor's tools, through its Makefile."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import AlloDseError
from .csim import load_results, save_arguments
from .project import HlsProject

TARGETS = {
    "csim": "vitis_csim",
    "csyn": "csynth",
    "csynth": "csynth",
    "cosim": "cosim",
    "hw_emu": "hw_emu",
    "hw": "hw",
}
"""The Makefile's target for each mode of `df.build`."""
_NUMBERS = ("csim", "hw_emu", "hw")


def check_mode(mode: str | None) -> None:
    """Refuse an unknown mode.

    Raises:
        AlloDseError: naming those that exist.
    """
    if mode is not None and mode not in TARGETS:
        raise AlloDseError(f"unknown mode {mode!r} of HLS", hint=f"known modes: {', '.join(TARGETS)}")


def tool_command() -> str | None:
    """The command of the vendor's tool that is on the search path: that of 2024.2 and later, or the older one."""
    return next((name for name in ("vitis-run", "vitis_hls") if shutil.which(name)), None)


def run_tool(project: HlsProject, mode: str, directory: str | None, arrays: Sequence[Any]) -> None:
    """Run a mode in the project's directory; modes that run the kernel write the arrays in place.

    Raises:
        AlloDseError: without the tool or a directory, or when it fails.
    """
    command = tool_command()
    if command is None:
        raise AlloDseError(
            f'mode "{mode}" needs AMD Vitis, and neither vitis-run nor vitis_hls is on the search path',
            hint=f'mode="csim" runs without it; or run `make {TARGETS[mode]}` in the project where the tool is',
        )
    if directory is None:
        raise AlloDseError(f'mode "{mode}" needs a directory', hint='df.build(..., project="gemm.prj")')
    data = Path(directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    arguments = save_arguments(project, arrays, data) if arrays else None
    script = "vitis-run --mode hls --tcl run_hls.tcl" if command == "vitis-run" else "vitis_hls -f run_hls.tcl"
    done = subprocess.run(
        ["make", TARGETS[mode], f"HLS={script}"], cwd=directory, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AlloDseError(
            f"`make {TARGETS[mode]}` failed in {directory}: {(done.stdout + done.stderr)[-2000:].strip()}"
        )
    if arguments is not None and mode in _NUMBERS:
        load_results(project, arguments, data)
