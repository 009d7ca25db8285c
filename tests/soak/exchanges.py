"""Tasks that exchange tokens with neighbours in any order, folded: check, timer and verifier agree on deadlocks."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.eval.verify import verify_design
from allo_dse.lang import install
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from .attack import Endless, Found, limited
from .numbers import SECONDS, random_folds

FOLDS = 4
DEVICES = ("npu1_4col", "zcu102")


@dataclass(frozen=True)
class RandomExchanges:
    """Halos in one and two dimensions, rings and chains of kernels, with puts before gets in half of them."""

    name: str = "exchanges"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        text = exchange_program(rng)
        path = folder / "exchange.py"
        path.write_text(text)
        names: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), names)
        try:
            with limited(SECONDS):
                program = dse.load_program(names["top"])
                for fold in random_folds(program, rng, FOLDS):
                    for device in DEVICES:
                        design = Design(program, fold, Buffering(), dse.Device.load(device))
                        if problem := disagreement(design):
                            raise Found(f"{problem}: {fold} on {device}\n{text}")
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{text}") from None


def disagreement(design: Design) -> str:
    """How check, timer and verifier differ on whether a design deadlocks; empty if they agree."""
    violations = design.mapping.violations
    refused = any(one.constraint == "stream_deadlock" for one in violations)
    verified = verify_design(design)
    hangs = "deadlock" in verified.message
    timer = NpuSimulator() if design.device.family == "npu" else FpgaSimulator()
    if refused and not hangs and design.device.family == "fpga":  # pipelines may wait where program order does not
        with suppress(SimulationError):
            timer.evaluate(design)
            return "the check says deadlock, the timer and the verifier fine"
    elif refused != hangs and (hangs or all(one.constraint == "stream_deadlock" for one in violations)):
        return f"the check says {'deadlock' if refused else 'fine'}, the verifier {verified.message!r}"
    if not hangs and not verified.ok:
        return f"computes other numbers: {verified.message}"
    if violations:
        return ""
    try:
        timer.evaluate(design)
    except SimulationError as error:
        return f"the check says fine, the timer {error}"
    return ""


def exchange_program(rng: random.Random, puts_first: bool | None = None) -> str:
    """A kernel on a line, ring or grid whose tasks exchange `tokens` with neighbours, round after round; and perhaps
    one that feeds it and one that gathers, each in its own order."""
    first = rng.random() < 0.5 if puts_first is None else puts_first
    shape, rows, columns = rng.choice(("line", "ring", "grid")), rng.choice((2, 3, 4, 6, 8)), rng.choice((2, 3, 4))
    tokens, rounds, depth = rng.choice((1, 1, 2, 4)), rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    tokens = 300 if rng.random() < 0.1 else tokens
    dims = 2 if shape == "grid" else 1
    mesh = [rows, columns][:dims]
    pids = ["i", "j"][:dims]
    sizes, arrays = ", ".join(map(str, mesh)), ", ".join(f"{n * 4}" for n in mesh)
    shards = ", ".join(f"Layout.Shard({axis})" for axis in range(dims))
    tile = ", ".join("4" for _ in mesh)
    zero = ", ".join("0" for _ in mesh)
    ways = [(axis, way) for axis in range(dims) for way in (1, -1) if rng.random() < 0.75] or [(0, 1)]
    lines = [
        "import allo", "import allo.dataflow as df", "from allo.ir.types import Stream, int32",
        "from allo.memory import Layout", "", "@df.region()",
        f"def top(X: int32[{arrays}], Y: int32[{arrays}]):",
    ]  # fmt: skip
    for number, _ in enumerate(ways):
        lines.append(f"    s{number}: Stream[int32, {depth}][{sizes}]")
    ends = rng.random() < 0.4 and dims == 1
    if ends:
        lines += [f"    into: Stream[int32[4], {depth}][{rows}]", f"    out: Stream[int32[4], {depth}][{rows}]"]
    args = "" if ends else "X, Y"
    params = "" if ends else f"x: int32[{arrays}] @ [{shards}], y: int32[{arrays}] @ [{shards}]"
    if ends:
        lines += [
            "    @df.kernel(mapping=[1], args=[X])", f"    def feed(x: int32[{rows * 4}]):",
            f"        with allo.meta_for({rows}) as r:", "            into[r].put(x[r * 4:(r + 1) * 4])",
        ]  # fmt: skip
    lines += [
        f"    @df.kernel(mapping=[{sizes}], args=[{args}])", f"    def core({params}):",
        f"        {', '.join(pids)} = df.get_pid()", f"        a: int32[{tile}] = 0",
        f"        a[{', '.join(':' for _ in mesh)}] = {'into[i].get()' if ends else 'x'}",
        f"        v: int32 = a[{zero}]",
    ]  # fmt: skip
    # Results in an array do not depend on what came before, so a pipeline may begin the next round meanwhile.
    in_array = dims == 1 and not ends and rng.random() < 0.4
    value, result = ("a[t % 4]", "y[t % 4] =") if in_array else ("v", "v +=")
    fused = shape == "ring" and rng.random() < 0.5
    phases: list[list[str]] = []
    for number, (axis, way) in enumerate(ways):
        pid, size = pids[axis], mesh[axis]
        ring = shape == "ring"
        there = list(pids)
        there[axis] = f"({pid} + {way % size}) % {size}" if ring else f"{pid} + {way}" if way > 0 else f"{pid} - 1"
        has_next = "" if ring else f"{pid} < {size - 1}" if way > 0 else f"{pid} > 0"
        has_last = "" if ring else f"{pid} > 0" if way > 0 else f"{pid} < {size - 1}"
        there_name, here_name = f"s{number}[{', '.join(there)}]", f"s{number}[{', '.join(pids)}]"
        put = _guarded(has_next, tokens, f"{there_name}.put({value} + t)")
        get = _guarded(has_last, tokens, f"{result} {here_name}.get()")
        if fused:
            phases.append([put[0], *put[1:], *get[1:]] if first else [get[0], *get[1:], *put[1:]])
            continue
        phases += [put, get] if first else [get, put]
    if first and not fused and rng.random() < 0.4:
        phases = phases[::2] + phases[1::2]
    if not first and rng.random() < 0.1:
        rng.shuffle(phases)
    indent = "        "
    if rounds > 1:
        lines.append(f"        for n in range({rounds}):")
        indent += "    "
    lines += [indent + line for phase in phases for line in phase]
    lines.append(f"        a[{zero}] = v")
    if not in_array:
        lines.append("        out[i].put(a)" if ends else f"        y[{', '.join(':' for _ in mesh)}] = a")
    if ends:
        lines += [
            "    @df.kernel(mapping=[1], args=[Y])", f"    def drain(y: int32[{rows * 4}]):",
            f"        with allo.meta_for({rows}) as r:", "            y[r * 4:(r + 1) * 4] = out[r].get()",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _guarded(condition: str, tokens: int, operation: str) -> list[str]:
    loop = [f"for t in range({tokens}):", f"    {operation}"]
    return loop if not condition else [f"with allo.meta_if({condition}):", *("    " + line for line in loop)]
