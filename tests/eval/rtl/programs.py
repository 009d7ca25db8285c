"""Random programs of tasks that only exchange numbers, for comparing circuits with the simulator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

HEAD = "import allo\nimport allo.dataflow as df\nfrom allo.ir.types import Stream, int32\n\n\ndef build():\n"


def random_program(seed: int, directory: Path) -> Any:
    """A function that returns a region `top(A: int32[tasks])`; whether it can end is left to chance.

    Every stream carries the same number of tokens. A task puts and gets them in loops over one stream or several, in an
    order of its own.
    """
    rng = random.Random(seed)
    tasks, tokens = rng.choice([2, 3]), rng.choice([4, 6])
    ends: list[tuple[int, int, int]] = []
    for _ in range(rng.choice([2, 3])):
        source, target = rng.sample(range(tasks), 2)
        ends.append((source, target, rng.choice([2, 4, 6])))
    lines = ["    @df.region()", f"    def top(A: int32[{tasks}]):"]
    lines += [f"        s{number}: Stream[int32, {depth}]" for number, (_, _, depth) in enumerate(ends)]
    for task in range(tasks):
        lines += ["        @df.kernel(mapping=[1], args=[A])", f"        def k{task}(a: int32[{tasks}]):"]
        lines += [f"            x: int32 = {task + 1}", *_body(rng, task, tokens, ends), f"            a[{task}] = x"]
    path = directory / f"program_{seed}.py"
    path.write_text(HEAD + "\n".join([*lines, "    return top", ""]))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["build"]


def _body(rng: random.Random, task: int, tokens: int, ends: list[tuple[int, int, int]]) -> list[str]:
    pieces = []
    for stream, (source, target, _) in enumerate(ends):
        left = tokens if task in (source, target) else 0
        while left:
            pieces.append((rng.randint(1, left), stream, task == source))
            left -= pieces[-1][0]
    if rng.random() < 0.4:
        rng.shuffle(pieces)
    lines, number = [], 0
    while pieces:
        count, *_ = first = pieces.pop(0)
        others = {p[1]: p for p in pieces if p[0] == count and p[1] != first[1]}
        together = [first, *(p for p in others.values() if rng.random() < 0.5)]
        for piece in together[1:]:
            pieces.remove(piece)
        lines.append(f"            for i{number} in range({count}):")
        for _, stream, puts in together:
            action = f"s{stream}.put(x + i{number})" if puts else f"x += s{stream}.get()"
            lines.append(f"                {action}")
        number += 1
    return lines
