"""What programs import from `allo.backend.hls`."""

from __future__ import annotations

import shutil


def is_available(tool: str = "vitis_hls") -> bool:
    """Whether the HLS tool's command is on the search path."""
    return shutil.which({"vhls": "vitis_hls", "vivado": "vivado_hls"}.get(tool, tool)) is not None
