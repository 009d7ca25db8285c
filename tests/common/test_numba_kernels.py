"""Compiled code that is kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_kept_code_whose_arguments_were_moved_since_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "before.py").write_text(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n"
    )
    source = "from {} import Pair\nfrom allo_dse.common.numba_kernels import compiled\n"
    source += (
        "@compiled\ndef add(pair):\n    return pair.a + pair.b\nprint(add(Pair(1, 2)), len(add.stats.cache_hits))\n"
    )
    told = []
    for module in ("before", "before", "after."):
        if module == "after.":
            (tmp_path / "before.py").rename(tmp_path / "after_.py")
        (tmp_path / "kernel.py").write_text(source.format(module.replace(".", "_")))
        os.utime(tmp_path / "kernel.py", (1, 1))
        run = subprocess.run(
            [sys.executable, "-B", "-c", "import kernel"], cwd=tmp_path, capture_output=True, text=True
        )
        told.append(run.stdout.split() or run.stderr)
    assert told == [["3", "0"], ["3", "1"], ["3", "0"]]
