"""Random schedules of nests of loops, and generated C++: both compute what the program does."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import allo_dse as dse
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.hls.build_modes import CSimulation
from allo_dse.common.errors import AlloDseError, ProgramError
from allo_dse.eval.execute.run import folding_of
from allo_dse.lang import install
from allo_dse.lang.schedule import customize
from allo_dse.simulator.deadlock import DeadlockError

from ..compiler.schedule.test_laws import TRANSFORMABLE, names, outcome
from ..support.random_programs import random_program
from .attack import Endless, Found, limited
from .numbers import SECONDS, loaded_mesh, random_folds, results_of

LONG_SECONDS = 3600.0  # a compiler on a busy machine takes its time
MOST_STEPS = 6
STEPS = ("split", "reorder", "fuse", "tile", "compute_at", "buffer_at", "unroll", "pipeline", "partition")
HAS_COMPILER = shutil.which("g++") is not None


@dataclass(frozen=True)
class RandomSchedules:
    """Loops of a nest split, exchanged, fused, tiled, moved, unrolled; arrays in buffers and in banks."""

    name: str = "schedules"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        region = rng.choice(TRANSFORMABLE)
        schedule = customize(region)
        try:
            with limited(SECONDS):
                for _ in range(rng.randint(1, MOST_STEPS)):
                    with suppress(ProgramError):
                        _step(schedule, rng)
                self._compare(region, schedule, rng.randrange(1 << 30))
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{region.__name__} {schedule.primitives}") from None

    def _compare(self, region: Any, schedule: Any, seed: int) -> None:
        plain: Any = customize(region)
        pairs = zip(outcome(schedule.build(), seed), outcome(plain.build(), seed), strict=True)
        if any((mine != theirs).any() for mine, theirs in pairs):
            raise Found(f"computes other numbers when scheduled: {region.__name__} {schedule.primitives}")
        found = dse.equivalent(dse.load_program(plain), dse.load_program(schedule), seed=seed)
        if not found:
            raise Found(f"is called another function when scheduled: {region.__name__} {schedule.primitives}: {found}")


def _step(schedule: Any, rng: random.Random) -> None:
    loops = names(schedule)
    some = rng.sample(loops, rng.randint(1, min(3, len(loops))))
    kind = rng.choice(
        ("split", "reorder", "fuse", "tile", "compute_at", "buffer_at", "unroll", "pipeline", "partition")
    )
    if kind == "split":
        schedule.split(some[0], rng.randint(1, 7))
    elif kind == "tile":
        schedule.tile(*some, *(rng.randint(1, 4) for _ in some))
    elif kind == "compute_at":
        schedule.compute_at(some[0], some[-1])
    elif kind in ("reorder", "fuse"):
        getattr(schedule, kind)(*some)
    elif kind in ("unroll", "pipeline"):
        getattr(schedule, kind)(some[0])
    else:
        array = getattr(schedule, rng.choice("ABC"), None)
        if array is not None and kind == "partition":
            schedule.partition(array, dim=rng.randint(0, 2))
        elif array is not None:
            schedule.buffer_at(array, axis=some[0])


@dataclass(frozen=True)
class RandomCpp:
    """C++ of random arithmetic and of folded meshes, compiled and run."""

    name: str = "c++"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        if rng.random() < 0.5:
            random_one = random_program(rng.randrange(1 << 60), widths_matter=True)
            program = dse.load_program(random_one.region(folder / "program.py"))
            vmg, text = program.vmg, random_one.text
            inputs = random_one.arrays(np.random.default_rng(rng.randrange(1 << 60)))
        else:
            program, text, inputs = loaded_mesh(rng, folder)
            vmg = program.vmg.fold(rng.choice(random_folds(program, rng, 1)))
        try:
            wanted = results_of(vmg, inputs)
        except DeadlockError:  # streams may be too shallow for the order of a fold's tasks
            return
        project = emit_project(vmg.program, folding=folding_of(vmg))
        found = [array.copy() for array in inputs]
        try:
            with CSimulation(project, seconds=LONG_SECONDS) as compiled:
                compiled(*found)
        except AlloDseError as error:
            raise Found(f"{error}\n{vmg.mapping_primitives}\n{text}") from None
        if any((a != b).any() for a, b in zip(found, wanted, strict=True)):
            raise Found(f"C++ computes other numbers: {vmg.mapping_primitives}\n{text}")
