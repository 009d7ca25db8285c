"""Growth of each step of a search with the size of what is searched, as an exponent.

    python -m benchmarks.growth [--quick]

Three series: a GEMM whose sides grow from 512 to 8,192, a row of 2 to 16 kernels, and a program of 4 to 64 parameters.
Each step is timed in processor seconds, the best of five. The exponent is the slope of time over size on logarithmic
axes, over the larger half of the series, where constant costs weigh less: 1 is linear, 0 independent of the size.

`propose`, `fold`, `check` and `bound` take equally many designs at each size. Parameters have 16 values, so that
proposals are of different programs, not compiled before. `first` draws and repairs designs until one keeps the limits;
it is then evaluated, placed and verified. Counting ends at a limit, and so does the solver of placements, `solve`.
Verification runs a smaller instance where the study names one.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from allo_dse.lang import install

install()

import allo_dse as dse
from allo_dse.backends.npu.place import cp_sat_placement
from allo_dse.common.cp_sat import answer
from allo_dse.common.errors import AlloDseError
from allo_dse.space.genes import Gene
from allo_dse.space.space import Candidate
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.study import load_studies
from benchmarks.search_speed import WHERE

MOST_COUNTED = 20_000  # as many as a search lists
MOST_DRAWN = 200  # until a design keeps the limits
PROPOSED = 60
COMPARED = 20  # those of them with the fewest tasks: most random ones of large sizes have more than can be built
REPEATS = 5
ENOUGH_SECONDS = 10.0  # after which a size is not measured again
LEAST_SECONDS = 1e-4  # less is noise, or nothing to do

HEAD = """
import allo
import allo.dataflow as df
from allo.ir.types import Stream, int16
from allo.memory import Layout

import allo_dse as dse

ROWS = [Layout.Shard(0), Layout.Replicate]
OBJECTIVES = [dse.minimize("latency_us"), dse.minimize("pe_count")]
"""
STAGE = """
        @df.kernel(mapping=[P], args=[{tensor}])
        def k{n}({argument}):
            p = df.get_pid()
            x: int16[M // P, N] = {source}
            y: int16[M // P, N] = allo.add(x, {n})
            {sink}
"""


def row_of_kernels(count: int) -> str:
    """Return a study of kernels that each add a number and feed the next."""
    text = HEAD + "\ndef row(M=256, N=256, P=16):\n    @df.region()\n    def top(A: int16[M, N], B: int16[M, N]):\n"
    text += "".join(f"        s{n}: Stream[int16[M // P, N], 2][P]\n" for n in range(count - 1))
    for n in range(count):
        tensor = "A" if n == 0 else "B" if n == count - 1 else ""
        source = f"s{n - 1}[p].get()" if n else "t"
        sink = f"s{n}[p].put(y)" if n < count - 1 else "t[:, :] = y"
        argument = "t: int16[M, N] @ ROWS" if tensor else ""
        text += STAGE.format(n=n, tensor=tensor, argument=argument, source=source, sink=sink)
    return (
        text
        + """
    return top

def study():
    return dse.Study("row", program=row, device="npu2", objectives=OBJECTIVES)
"""
    )


def many_parameters(count: int) -> str:
    """Return a study of a program with parameters that only change a constant."""
    names = [f"c{n}" for n in range(count)]
    return f"""{HEAD}
def shifted(P=16, {", ".join(f"{name}=0" for name in names)}):
    TOTAL = {" + ".join(names)}
    @df.region()
    def top(A: int16[256, 256], B: int16[256, 256]):
        @df.kernel(mapping=[P], args=[A, B])
        def add(a: int16[256, 256] @ ROWS, b: int16[256, 256] @ ROWS):
            b[:, :] = allo.add(a, TOTAL)
    return top

def study():
    params = dict.fromkeys({names}, dse.choices(range(16)))
    return dse.Study("shifted", program=shifted, params=params, device="npu2", objectives=OBJECTIVES)
"""


def studies(folder: Path, quick: bool) -> Iterator[tuple[str, dict[int, Callable[[], dse.Study]]]]:
    """Yield each series: by size a function that declares the study."""

    def written(size: int, text: Callable[[int], str]) -> Callable[[], dse.Study]:
        file = folder / f"{text.__name__}_{size}.py"
        file.write_text(text(size), encoding="utf-8")
        return lambda: load_studies(file)[0]

    def gemm(size: int) -> Callable[[], dse.Study]:
        return lambda: load_studies(WHERE / "gemm_npu.py", {"size": str(size), "device": "npu2", "dtype": "i8"})[0]

    most = 2 if quick else None
    yield "side of a GEMM", {size: gemm(size) for size in (512, 1024, 2048, 4096, 8192)[:most]}
    yield "kernels in a row", {size: written(size, row_of_kernels) for size in (2, 4, 8, 16)[:most]}
    yield "parameters", {size: written(size, many_parameters) for size in (4, 16, 64)[:most]}


class Timer:
    """A function that counts the processor seconds of its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        started = time.process_time()
        result = self.function(*arguments, **options)
        self.seconds += time.process_time() - started
        return result


class Steps:
    """Processor seconds of each step; the best of several times."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        timer = Timer(work)
        result = timer(*arguments)
        self.note(name, timer.seconds)
        return result

    def note(self, name: str, seconds: float) -> None:
        self.seconds[name] = min(self.seconds.get(name, math.inf), seconds)

    def measure(self, study: dse.Study) -> None:
        self.timed("compile", study.first_program)
        self.timed("count", study.space.count, MOST_COUNTED)
        designs = self.timed("propose", _proposed, study)
        designs = sorted(designs, key=lambda design: design.program.vmg.task_count)[:COMPARED]
        self.timed("fold", lambda: [design.vmg.edges for design in designs])
        self.timed("check", lambda: [study.check(design) for design in designs])
        evaluator = study.make_evaluator()
        bounds = study.lower_bounds(evaluator)
        self.timed("bound", lambda: [bounds(design, level) for design in designs for level in range(bounds.levels)])
        design = self.timed("first", _first, study)
        if design is None:
            return
        self.timed("evaluate", evaluator.evaluate, design)
        solver = Timer(answer)
        with mock.patch.object(cp_sat_placement, "answer", solver):
            placing = Timer(lambda: design.mapping.placement)
            placing()
        self.note("place", placing.seconds - solver.seconds)
        self.note("solve", solver.seconds)
        self.timed("verify", study.verify, design, 0)


def _first(study: dse.Study) -> Any:
    """Return a design that keeps the limits, if one is found: proposals are repaired once most break them."""
    screen, suggest = Screen(study.space, study.check), _random(np.random.default_rng(0))
    found = (screen.decode_unless(None, suggest) for _ in range(MOST_DRAWN))
    return next((candidate.design for candidate in found if candidate), None)


def _proposed(study: dse.Study) -> list[Any]:
    random = np.random.default_rng(0)
    found = [_decoded(study, _random(random)) for _ in range(PROPOSED)]
    return [one.design for one in found if one is not None]


def _decoded(study: dse.Study, answers: Callable[[str, Gene], int]) -> Candidate | None:
    """Return the design of some genes; None for programs that do not compile, as they have too many tasks."""
    try:
        return study.space.decode(answers)
    except AlloDseError:
        return None


def _random(random: np.random.Generator) -> Callable[[str, Gene], int]:
    return lambda _, gene: int(random.integers(gene.low, gene.high + 1))


def exponents(series: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Return the slope of each step over the larger half of the sizes, of those at which there was work for it."""
    sizes = sorted(series)[-max(2, (len(series) + 1) // 2) :]
    found = {}
    for name in next(iter(series.values())):
        known = [size for size in sizes if series[size].get(name, 0.0) > LEAST_SECONDS]
        if len(known) > 1:
            logs = np.log(known), np.log([series[size][name] for size in known])
            found[name] = float(np.polyfit(*logs, 1)[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of each series")
    parser.add_argument("--series", default="", help="only the series whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, made in studies(Path(folder), options.quick):
            if options.series not in name:
                continue
            series = {}
            for size, make in made.items():
                steps = Steps()
                started = time.process_time()
                for _ in range(REPEATS):
                    if time.process_time() - started < ENOUGH_SECONDS:
                        steps.measure(make())
                series[size] = steps.seconds
                words = ", ".join(f"{step} {seconds * 1e3:,.0f}" for step, seconds in series[size].items())
                print(f"{name} {size:>6,}: {words} ms", flush=True)
            print(f"{name}: exponents: {', '.join(f'{step} {one:.2f}' for step, one in exponents(series).items())}")


if __name__ == "__main__":
    main()
