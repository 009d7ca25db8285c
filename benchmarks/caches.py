"""Print every cache of the package with how often it is computed and read on small runs, and the time it saves.

    python -m benchmarks.caches              # all caches, by the time they save
    python -m benchmarks.caches --unused     # only those that save nothing: read at most once per computed value
    python -m benchmarks.caches fpga         # the commands that contain `fpga`

Caches are cached properties, `functools.cache`, `functools.lru_cache`, and values kept by `common.records.once` and by
the `once` of graphs and groups of nodes. A cache saves (reads - computed) times the mean time of a computation, caches
within it included, so the sum over all caches is more than a run without any would lose.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "studies/gemm_npu.py --trials 60 --seed 0 --run-dir gemm",
    "report gemm --study studies/gemm_npu.py -o gemm.html",
    "export 0 gemm --study studies/gemm_npu.py --to gemm_folder",
    "studies/attention_npu.py --trials 40 --seed 0 --run-dir attention",
    "studies/systolic_fpga.py --trials 40 --seed 0 --run-dir systolic_fpga",
    "report systolic_fpga --study studies/systolic_fpga.py -o systolic.html",
    "export 0 systolic_fpga --study studies/systolic_fpga.py --to systolic_folder",
    "depths 0 systolic_fpga --study studies/systolic_fpga.py",
    "studies/scheduled_fpga.py --trials 30 --seed 0 --run-dir scheduled_fpga",
    "studies/polybench_fpga.py --trials 40 --seed 0 --run-dir polybench_fpga",
    "network studies/networks/mlp_npu.py --trials 8 --cache mlp --output mlp_folder",
)  # a command reads the runs of those before it
PACKAGE = "allo_dse"
MODELS = "allo_dse.device."  # Pydantic's models take properties of the standard library only


class Counts:
    """Computations, reads and seconds by the name of a cache; a read of a value that is not there yet counts."""

    def __init__(self) -> None:
        self.computed = Counter[str]()
        self.read = Counter[str]()
        self.seconds = defaultdict[str, float](float)
        self._kept: list[tuple[str, Any]] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*given: Any, **named: Any) -> Any:
            self.computed[name] += 1
            start = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.seconds[name] += time.perf_counter() - start

        return counted

    def kept(self, name: str, cached: Any) -> Any:
        """Remember a function of `lru_cache`, whose reads it counts itself."""
        self._kept.append((name, cached))
        return cached

    def rows(self) -> dict[str, tuple[int, int, float]]:
        read = Counter(self.read)
        for name, cached in self._kept:
            info = cached.cache_info()
            read[name] += info.hits + info.misses
        return {name: (self.computed[name], count, self.seconds[name]) for name, count in read.items()}


def instrument(counts: Counts) -> None:
    """Count the caches of modules of the package that are imported from now on."""
    plain_property, plain_cache = functools.cached_property, functools.lru_cache

    class CountedProperty(functools.cached_property[Any]):
        """A cached property that sees every read: with `__set__`, the value in `__dict__` does not hide it."""

        def __new__(cls, function: Callable[[Any], Any]) -> Any:
            if not function.__module__.startswith(PACKAGE) or function.__module__.startswith(MODELS):
                return plain_property(function)
            counts.read[f"{function.__module__}.{function.__qualname__}"] += 0
            return super().__new__(cls)

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            name = f"{self.func.__module__}.{self.func.__qualname__}"
            counts.read[name] += 1
            own = vars(instance)
            if self.attrname not in own:
                own[self.attrname] = counts.timed(name, self.func)(instance)
            return own[self.attrname]

        def __set__(self, instance: Any, value: Any) -> None:
            vars(instance)[self.attrname] = value

    def counted_cache(maxsize: Any = 128, typed: bool = False) -> Any:  # as in functools
        def of(function: Any) -> Any:
            module, qualified = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
            if not module.startswith(PACKAGE):
                return plain_cache(maxsize, typed)(function)
            name = f"{module}.{qualified}"
            return counts.kept(name, plain_cache(maxsize, typed)(counts.timed(name, function)))

        if callable(maxsize):
            function, maxsize = maxsize, 128
            return of(function)
        return of

    vars(functools).update(cached_property=CountedProperty, lru_cache=counted_cache, cache=counted_cache(None))

    from allo_dse.common import records

    plain_once = records.once

    def counted_once(known: Any, key: Any, made: Callable[[], Any], *most: int) -> Any:
        caller = sys._getframe(1)
        name = f"{caller.f_globals['__name__']}.{caller.f_code.co_qualname}"
        counts.read[name] += 1
        return plain_once(known, key, counts.timed(name, made), *most)

    vars(records)["once"] = counted_once

    from allo_dse.mapper.graph.groups import Shared

    timed = functools.partial(functools.cache(lambda make: counts.timed(named(make), make)))

    def named(make: Any) -> str:
        return f"{make.__module__}.{make.__qualname__} (once)"

    plain_shared = Shared.once

    def counted_shared(self: Any, make: Any, *given: Any, **more: Any) -> Any:
        counts.read[named(make)] += 1
        return plain_shared(self, timed(make), *given, **more)

    Shared.once = counted_shared  # type: ignore[method-assign]


def run(arguments: list[str]) -> dict[str, tuple[int, int, float]]:
    """Run a command in this process, and return the rows of its caches."""
    counts = Counts()
    instrument(counts)
    from allo_dse.cli.main import main as command

    sys.argv = ["allo-tune", *arguments]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            command()
        except SystemExit as end:
            if end.code:
                raise
    return counts.rows()


def measured(commands: list[str]) -> Iterator[dict[str, tuple[int, int, float]]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            arguments = [str(ROOT / word) if word.endswith(".py") else word for word in command.split()]
            call = [sys.executable, "-m", "benchmarks.caches", "--answer", "rows.json", *arguments]
            subprocess.run(call, check=True, cwd=folder, env=environment)
            yield json.loads((Path(folder) / "rows.json").read_text())


def main() -> None:
    if sys.argv[1:2] == ["--answer"]:
        Path(sys.argv[2]).write_text(json.dumps(run(sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", help="commands that contain this")
    parser.add_argument("--unused", action="store_true", help="only caches that save nothing")
    options = parser.parse_args()
    totals = defaultdict[str, list[float]](lambda: [0, 0, 0.0])
    for rows in measured([command for command in COMMANDS if options.part in command]):
        for cache, row in rows.items():
            totals[cache] = [have + more for have, more in zip(totals[cache], row, strict=True)]
    print(f"{'computed':>10} {'reads':>12} {'us each':>10} {'saved s':>10}  cache")
    saved = {cache: max(0, read - made) * seconds / max(1, made) for cache, (made, read, seconds) in totals.items()}
    for cache in sorted(totals, key=lambda one: -saved[one]):
        made, read, seconds = totals[cache]
        if not options.unused or read <= made:
            print(f"{made:10,.0f} {read:12,.0f} {seconds / max(1, made) * 1e6:10,.1f} {saved[cache]:10.3f}  {cache}")


if __name__ == "__main__":
    main()
