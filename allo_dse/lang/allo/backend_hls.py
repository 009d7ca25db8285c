"""Contents of `allo.backend.hls` for programs."""

from __future__ import annotations

import shutil


def is_available(tool: str = "vitis_hls") -> bool:
    """Return whether the HLS tool's command is on the search path."""
    return shutil.which({"vhls": "vitis_hls", "vivado": "vivado_hls"}.get(tool, tool)) is not None
