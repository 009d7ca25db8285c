"""PolyBench as Allo's examples have it, each program tuned as a study of its schedule, and run by its own test.

    python -m benchmarks.polybench_schedules ALLO/examples/polybench [designs, default 6] [program ...]

The programs are Allo's, in a checkout of it, and are not changed. Of each, its test says the sizes and what is right;
the function that it schedules becomes a study, whose parameters say which loop of every nest is pipelined, how often
the innermost one is unrolled, whether sums run outside, and into how many banks arrays are split. The fastest design
then takes the place of the test's own schedule: what it computes is what the test compares.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import allo_dse.lang

allo_dse.lang.install()

import allo_dse as dse
from allo_dse.common.errors import AlloDseError, ProgramError
from allo_dse.common.mlir.bindings import nested_ops
from allo_dse.compiler.ir.nest import LOOP
from allo_dse.lang import schedule as language

NOT_PROGRAMS = ("__init__", "test_polybench")
BUILD, OPEN = language.Schedule.build, language._open_session


class Stop(Exception):
    """The test has said which function it schedules."""


@dataclass(frozen=True)
class Program:
    """A program of a checkout: its test, and the function with the values of its type parameters."""

    name: str
    test: Callable[[], object]
    given: language.Schedule
    instance: Any

    def scheduled(self, level: int = 0, unroll: int = 1, banks: int = 1, sums_outside: bool = False) -> Any:
        """The function with a schedule of its own.

        Args:
            level: how many loops around the innermost one are not pipelined through: 0 pipelines the innermost one.
            unroll: of the innermost loops.
            banks: of every array, along its last dimension.
            sums_outside: whether the innermost two loops of nests of three change places, where results stay.
        """
        schedule = language.Schedule(self.given.region, self.given.arguments, _session=OPEN(self.instance))
        session: Any = schedule.session
        functions = dict.fromkeys(source.function for body in session._bodies for source in body.sources)
        for function in functions:
            for name, band in schedule.get_loops(function):
                if (function, name) not in _callers(session):
                    self._nest(schedule, [axis for _, axis in band], level, unroll, sums_outside)
        if banks > 1:
            for function, name, rank in sorted(_arrays(session)):
                schedule.partition(f"{function}:{name}", partition_type="cyclic", dim=rank, factor=banks)
        return schedule

    def _nest(self, schedule: Any, axes: list[Any], level: int, unroll: int, sums_outside: bool) -> None:
        if sums_outside and len(axes) >= 3:
            try:
                schedule.reorder(axes[-1], axes[-2])
                axes[-2:] = axes[:-3:-1]
            except ProgramError:
                pass  # results would differ, or other statements stand between
        if unroll > 1:
            schedule.unroll(axes[-1], factor=unroll)
        schedule.pipeline(axes[max(0, len(axes) - 1 - level)])


def _callers(session: Any) -> set[tuple[str, str]]:
    """Nests in which functions with loops are called: to pipeline them would unroll those."""
    found = set()
    for body in session._bodies:
        for loop in body.loops():
            own = body.source(loop)
            for inner in nested_ops(loop):
                if LOOP in inner.attributes and body.source(inner).function != own.function:
                    found.add((own.function, own.band))
    return found


def _arrays(session: Any) -> set[tuple[str, str, int]]:
    found = set()
    for body in session._bodies:
        for (function, _, name), value in body.arrays.items():
            if rank := len(value.type.shape):
                found.add((function, name, rank))
    return found


def read(name: str) -> Program:
    """A program of the checkout whose folder is the current one."""
    opened: dict[object, Any] = {}
    found: list[language.Schedule] = []

    def opening(instance: Any) -> Any:
        opened[getattr(instance, "function", instance)] = instance
        return OPEN(instance)

    def building(self: language.Schedule, *_: object, **__: object) -> Any:
        found.append(self)
        raise Stop

    test = getattr(importlib.import_module(name), f"test_{name}")
    recorded = patch.object(language, "_open_session", opening), patch.object(language.Schedule, "build", building)
    with recorded[0], recorded[1], suppress(Stop):
        test()
    return Program(name, test, found[0], opened[found[0].region])


def tuned(program: Program, designs: int) -> str:
    """Search, run the program's test with the fastest design, and say what was found."""

    def scheduled(level: int = 0, unroll: int = 1, banks: int = 1, sums_outside: bool = False) -> Any:
        return program.scheduled(level, unroll, banks, sums_outside)

    study = dse.Study(
        program.name,
        program=scheduled,
        params={
            "level": dse.choices([0, 1]),
            "unroll": dse.choices([1, 2, 4]),
            "banks": dse.choices([1, 2, 4]),
            "sums_outside": dse.choices([False, True]),
        },
        device="u280",
        objectives=[dse.minimize("latency_cycles"), dse.minimize("dsp")],
        trials=designs,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = study.run(trials=designs, seed=0, run_dir=folder, verify=False, progress="quiet")
        front = sorted(((d.metrics["latency_cycles"], d.metrics["dsp"], dict(d.params)) for d in result.front), key=str)
    if not front:
        raise AlloDseError("no design could be evaluated")
    fastest = min(front, key=lambda one: one[0])

    def building(_: language.Schedule, *args: Any, **options: Any) -> Any:
        return BUILD(program.scheduled(**fastest[2]), *args, **options)

    with patch.object(language.Schedule, "build", building):
        program.test()
    points = ", ".join(f"{cycles:,} cycles {dsp} DSPs" for cycles, dsp, _ in sorted(front, key=lambda one: one[0]))
    return f"right; {points}; fastest {fastest[2]}"


def main(arguments: list[str]) -> int:
    if not arguments:
        print("skipped: it needs the folder of a checkout, ALLO/examples/polybench")
        return 0
    folder, designs, names = Path(arguments[0]), int((arguments[1:] or ["6"])[0]), arguments[2:]
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    names = names or sorted(path.stem for path in folder.glob("*.py") if path.stem not in NOT_PROGRAMS)
    right = 0
    for name in names:
        try:
            print(f"{name}: {tuned(read(name), designs)}", flush=True)
            right += 1
        except (Exception, SystemExit) as error:  # every kind of failure is one
            print(f"{name}: FAILED {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
    print(f"{right} of {len(names)} programs: a front, and right results of its fastest design")
    return 0 if right == len(names) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
