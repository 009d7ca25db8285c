"""The queue of changed operations, and compiled code that is kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.simulator.replay.spread import pop, push


@given(st.lists(st.integers(-9, 9) | st.none(), max_size=60))
def test_the_queue_gives_the_smallest_key_first(steps: list[int | None]) -> None:
    """Entries are added (a key) and taken (None) in any order."""
    heap = np.zeros((60, 2), np.int64)
    held: list[tuple[int, int]] = []
    for number, key in enumerate(steps):
        if key is not None:
            push(heap, len(held), key, number)
            held.append((key, number))
        elif held:
            least = min(held)[0]
            assert heap[0, 0] == least
            taken = pop(heap, len(held))
            assert (least, taken) in held
            held.remove((least, taken))


@given(st.lists(st.integers(0, 99), min_size=4, max_size=40))
def test_what_was_added_comes_out_in_order(keys: list[int]) -> None:
    heap = np.zeros((len(keys), 2), np.int64)
    for number, key in enumerate(keys):
        push(heap, number, key, number)
    assert [keys[pop(heap, count)] for count in range(len(keys), 0, -1)] == sorted(keys)


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
