"""The modes of `df.build(..., target="vitis_hls", mode=...)` that need the vendor's tools."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from allo_dse.backends.hls import HlsProject
from allo_dse.backends.hls.csim import load_results, save_arguments
from allo_dse.common.errors import AlloDseError

from .hls_tool import find_tool, run_steps

CSIM = "csim"
STEPS = {"csyn": ("csynth",), "debug": ("csynth",), "csynth": ("csynth",), "cosim": ("csynth", "cosim")}
"""Steps of the project's script, by mode."""
MAKE = ("hw_emu", "hw")
"""Modes that link the kernel and run it, through the project's Makefile."""
TOOL_SECONDS = 24 * 3600.0


def check_mode(mode: str | None) -> None:
    """Refuse an unknown mode.

    Raises:
        AlloDseError: naming those that exist.
    """
    known = (CSIM, *STEPS, *MAKE)
    if mode is not None and mode not in known:
        raise AlloDseError(f"unknown mode {mode!r} of HLS", hint=f"known modes: {', '.join(known)}")


def run_mode(project: HlsProject, mode: str, directory: str | None, arrays: Sequence[ArrayLike]) -> None:
    """Run a mode in the project's directory; "hw_emu" and "hw" write the arrays in place.

    Raises:
        AlloDseError: without the tool or a directory, or when it fails.
    """
    missing = shutil.which("v++") is None if mode in MAKE else find_tool() is None
    if missing:
        raise AlloDseError(
            f'mode "{mode}" needs AMD Vitis, which is not on the search path',
            hint='source its settings64.sh, or build with mode="csim", which runs without it',
        )
    if directory is None:
        raise AlloDseError(f'mode "{mode}" needs a directory', hint='df.build(..., project="gemm.prj")')
    data = Path(directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    arguments = save_arguments(project, arrays, data) if arrays else None
    if mode in STEPS:
        run_steps(Path(directory), STEPS[mode], seconds=TOOL_SECONDS)
        return
    done = subprocess.run(["make", mode], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr)[-2000:].strip()
        raise AlloDseError(f"`make {mode}` failed in {directory}: {output}")
    if arguments is not None:
        load_results(project, arguments, data)
