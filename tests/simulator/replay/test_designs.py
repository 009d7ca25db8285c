"""Replay of real designs: recorded traces against RTL co-simulation. Skipped where the traces are not there."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.simulator.replay.trace import Trace

from ...support.others_data import SHARED, requires
from .support import makespans

TRACES = SHARED / "traces"
pytestmark = requires(TRACES)
NAMES = sorted(path.stem for path in TRACES.glob("*.npz")) if TRACES.is_dir() else []


@cache
def design(name: str) -> Trace:
    return Trace.load(TRACES / f"{name}.npz")


@cache
def rtl_cycles() -> dict[str, int]:
    with (TRACES / "cosim_cycles.csv").open() as file:
        return {row["design"]: int(row["cosim_cycles"]) for row in csv.DictReader(file)}


@cache
def late() -> dict[str, int]:
    """Cycles by which replay is later than RTL simulation."""
    return {name: design(name).replay().cycles - cycles for name, cycles in rtl_cycles().items()}


def test_cycles_are_those_of_rtl_simulation() -> None:
    assert len(late()) == 10
    assert max(map(abs, late().values())) <= 5, late()
    assert abs(np.mean(list(late().values()))) < 2, late()
    assert np.median(list(late().values())) == pytest.approx(0, abs=0.5)
    assert max(abs(cycles) / rtl_cycles()[name] for name, cycles in late().items()) < 0.0005


def test_how_late_replay_is_does_not_grow_with_the_number_of_processes() -> None:
    """Eight processes of the same depths and pipelines as four are no later: T6, T9 and T10 hold for each process."""
    assert late()["synthetic_opt5_k7mmseq_unbalanced"] == 0  # a chain of eight
    assert late()["2560_DSPs_opt3_bicg"] == 0  # two chains of two


@pytest.mark.parametrize("name", NAMES)
def test_every_design_runs_at_its_depths(name: Any) -> None:
    result = design(name).replay()
    result.require_finished()
    assert (result.occupancy <= result.depths).all()
    assert not design(name).notes


@pytest.mark.parametrize("name", NAMES[::17])
def test_saved_designs_are_the_same(name: Any, tmp_path: Path) -> None:
    design(name).save(tmp_path / "t.npz")
    with np.load(TRACES / f"{name}.npz") as old, np.load(tmp_path / "t.npz") as new:
        for array in ("loop", "kind", "stream", "iteration", "stream_depth"):
            assert (old[array] == new[array]).all()
    assert Trace.load(tmp_path / "t.npz").replay().cycles == design(name).replay().cycles


@pytest.mark.parametrize("name", ["synthetic_opt5_k7mmtree_balanced", "2560_DSPs_opt3_bicg"])
def test_batches_of_real_designs(name: str) -> None:
    trace = design(name)
    rng = np.random.default_rng(1)
    batch = rng.integers(1, trace.stream_depth + 1, (20, len(trace.streams)))
    batch[::2] = np.maximum(batch[::2], trace.smallest_depths().depths)
    singles = [trace.replay(depths) for depths in batch]
    assert all(result.finished for result in singles[::2])
    assert makespans(trace, batch) == [r.cycles if r.finished else -1 for r in singles]
