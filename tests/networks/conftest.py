"""What tests of networks share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allo_dse.networks.onnx.torch import PYTHON

from ..support.short_searches import few_designs_are_listed


@pytest.fixture(autouse=True, scope="module")
def searches_are_short() -> Iterator[None]:
    with few_designs_are_listed():
        yield


@pytest.fixture(scope="session")
def pytorch() -> None:
    """PyTorch, for the interpreter that Debian's packages are for."""
    # Importing it takes a second.
    command = [PYTHON, "-c", "import importlib.util as m, sys; sys.exit(not m.find_spec('torch'))"]
    if not Path(PYTHON).exists() or subprocess.run(command, check=False).returncode:
        pytest.skip(f"needs PyTorch for {PYTHON} (apt-get install --no-install-recommends python3-torch: 150 MB)")
