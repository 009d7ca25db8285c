"""How fast programs compile and run, in one run on one machine, with NumPy's numbers as the reference.

    python -m benchmarks.language_compile [--sizes 4,8,16,32,64] [--svg compile_time.svg]

1. A 16x16 systolic array of scalar streams, K = 256 (324 tasks with loaders and drains): the first time, with an empty
   cache, from the region to checked results; then again, with everything compiled.
2. Arrays from 4x4 to 64x64: time from the region to a compiled program (front end), and on to machine code with a run,
   against the number of tasks and of task classes. What is compiled is classes, not tasks.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import allo_dse.lang

allo_dse.lang.install()

import allo.dataflow as df

from allo_dse.compiler import compile_region
from allo_dse.simulator.engine import engine
from tests.compiler.samples import systolic

REPEATS = 5


def seconds(action: Callable[..., Any]) -> Any:
    """The action's result and its time."""
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


def warm_up() -> None:
    """Import what is imported at first use, so that times are those of compiling."""
    a = np.ones((1, 1), np.float32)
    df.build(systolic(1, 1, 1))(a, a, a.copy())
    forget()


def forget() -> None:
    """Drop all machine code."""
    engine._compiled.cache_clear()


def operands(size: Any, depth: Any) -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, dtype=np.float32) for shape in ((size, depth), (depth, size)))
    return a, b, np.zeros((size, size), np.float32)


def check(a: Any, b: Any, c: Any) -> None:
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def first_and_again(size: Any, depth: Any) -> Any:
    """Seconds of the first build and call, and the median of later calls."""
    a, b, c = operands(size, depth)

    def first() -> Any:
        module = df.build(systolic(size, size, depth), target="simulator")
        module(a, b, c)
        return module

    module, initial = seconds(first)
    check(a, b, c)
    later = []
    for _ in range(4 * REPEATS):
        c[:] = 0
        later.append(seconds(lambda: module(a, b, c))[1])
        check(a, b, c)
    return initial, float(np.median(later)), module.result.cycles


def row(size: Any, depth: int) -> Any:
    """Tasks, classes, and seconds: front end (median), machine code and first run, later runs."""
    programs = [seconds(lambda: compile_region(systolic(size, size, depth))) for _ in range(REPEATS)]
    program = programs[0][0]
    front = float(np.median([t for _, t in programs]))
    forget()
    initial, again, _ = first_and_again(size, depth)
    return program.task_count, len(program.kernels[0].classes), front, initial, again


def plot(rows: Any, path: Any) -> None:
    """Compile time against tasks, as an SVG with logarithmic axes; the dashed line would be growth with the tasks."""
    width, height, margin = 520, 320, 60
    low_x, high_x = np.log10(rows[0][0]), np.log10(rows[-1][0])
    low_y, high_y = -3.0, 1.0

    def x(tasks: Any) -> Any:
        return margin + (np.log10(tasks) - low_x) / (high_x - low_x) * (width - 2 * margin)

    def y(time_s: Any) -> Any:
        return height - margin - (np.log10(time_s) - low_y) / (high_y - low_y) * (height - 2 * margin)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for power in range(int(low_y), int(high_y) + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{margin}" x2="{width - margin}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{margin - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    for tasks, classes, *_ in rows:
        parts.append(f'<text x="{x(tasks):.1f}" y="{height - margin + 18}" text-anchor="middle">{tasks:,}</text>')
        parts.append(
            f'<text x="{x(tasks):.1f}" y="{height - margin + 34}" text-anchor="middle" fill="#888">'
            f"{classes} classes</text>"
        )
    proportional = [(r[0], rows[0][2] * r[0] / rows[0][0]) for r in rows]
    lines = [("front end", "#1f6fb4", [(r[0], r[2]) for r in rows], ""), ("and machine code, first run", "#c2452d",
             [(r[0], r[3]) for r in rows], ""), ("growth with tasks", "#999", proportional, "4 4")]  # fmt: skip
    for number, (name, color, points, dash) in enumerate(lines):
        path_text = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        parts.append(
            f'<polyline points="{path_text}" fill="none" stroke="{color}" stroke-dasharray="{dash}" stroke-width="2"/>'
        )
        parts.append(f'<text x="{margin + 10}" y="{margin - 36 + 16 * number}" fill="{color}">{name}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">tasks of a systolic array</text></svg>')
    path.write_text("\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="4,8,16,32,64", help="arrays to compile")
    parser.add_argument("--depth", type=int, default=256, help="K of the 16x16 array; the others use K = 16")
    parser.add_argument("--svg", type=Path, default=None, help="write the plot of compile times here")
    options = parser.parse_args()
    warm_up()
    initial, again, cycles = first_and_again(16, options.depth)
    print(f"16x16 systolic array, K = {options.depth}: {cycles:,} cycles, equal to NumPy")
    print(f"  compile and run, first time  {initial * 1e3:8.1f} ms   (asked: under 1,000 ms)")
    print(f"  run again                    {again * 1e3:8.2f} ms   (asked: under 2 ms)\n")
    print("   array   tasks  classes  front end  with machine code and first run  run again")
    rows = []
    for size in map(int, options.sizes.split(",")):
        rows.append(row(size, 16))
        tasks, classes, front, first, later = rows[-1]
        print(
            f"{size:4}x{size:<3} {tasks:7,} {classes:8} {front * 1e3:7.1f} ms "
            f"{first * 1e3:29.1f} ms {later * 1e3:7.2f} ms"
        )
    if options.svg is not None:
        plot(rows, options.svg)
        print(f"\nplot: {options.svg}")


if __name__ == "__main__":
    main()
