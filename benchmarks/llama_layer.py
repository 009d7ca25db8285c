"""A layer of Llama-3.2-1B as mlir-air maps it by hand: what the model predicts against what was measured.

    python -m benchmarks.llama_layer [--steps]

Prefill of 2,048 tokens on XDNA2, bfloat16. The mapping is that of mlir-air e972f29 (`programming_examples/llms`): three
calls of 7, 1 and 12 programs after each other, each on all columns, of which products in two of them have a second
program that casts their result. The operators are those of `npu_cases.py`, with the constants of the device files,
of which none was fitted to a whole layer. Predicted times of programs after the first contain their beginning.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.npu_cases import Case, npu2_case

TOKENS, WIDTH, HIDDEN, HEADS, PAIRS, HEAD = 2048, 2048, 8192, 32, 8, 64
WITHIN = 0.15
"""How far off a prediction of one of the three calls may be."""


@dataclass(frozen=True)
class Call:
    """What one call does, one operator after another.

    Attributes:
        measured_us: of the NPU, per layer, mlir-air e972f29.
    """

    name: str
    measured_us: float
    steps: tuple[Case, ...]

    @property
    def predicted_us(self) -> float:
        """Programs after the first of a call are begun within it."""
        designs = tuple(design for step in self.steps for design in step.designs)
        relaunches = sum(step.relaunches for step in self.steps)
        return Case("", self.name, designs, self.measured_us, relaunches=relaunches).predicted_us()


def _operator(op: str, shape: str, tile: str = "row", rows: int = 1) -> Case:
    fields = {"op": op, "shape": shape, "columns": "8", "rows": str(rows), "tile": tile}
    return npu2_case({**fields, "dtype": "bf16->bf16"}, 0.0)


def _product(depth: int, columns: int, outer: int) -> Case:
    """Sums of float32 to DRAM, then cast: 64 x 32 x 128 on a core."""
    return _operator("gemm_fused-cast", f"{TOKENS}x{depth}x{columns}", f"64x32x128 (L2 k {outer})", rows=4)


def _narrow_product(columns: int) -> Case:
    """Sums that are cast while they leave the cores."""
    return _operator("gemm_drain", f"{TOKENS}x{WIDTH}x{columns}", "32x32x128 (L2 k 256)", rows=4)


def calls() -> tuple[Call, ...]:
    """The three calls of a layer."""
    norm, add = _operator("rms_norm", f"{TOKENS}x{WIDTH}"), _operator("add", str(TOKENS * WIDTH), "2048")
    square, rising = _product(WIDTH, WIDTH, 512), _product(WIDTH, HIDDEN, 256)
    narrow, falling = _narrow_product(PAIRS * HEAD), _product(HIDDEN, WIDTH, 256)
    turns = [_operator("rope", f"{TOKENS * heads}x{HEAD}") for heads in (HEADS, PAIRS)]
    attention = _operator("attention", f"{TOKENS}x{TOKENS} d{HEAD} heads {HEADS}/{PAIRS} causal", "64", rows=4)
    gated = _operator("silu_mul", str(TOKENS * HIDDEN), "4096")
    return (
        Call("norm, Q, K, V, RoPE", 7300.0, (norm, square, narrow, narrow, *turns)),
        Call("attention", 21600.0, (attention,)),
        Call("output, add, norm, FFN, add", 41000.0, (square, add, norm, rising, rising, gated, falling, add)),
    )


def _line(name: str, predicted_us: float, measured_us: float) -> str:
    error = predicted_us / measured_us - 1
    missed = "" if abs(error) <= WITHIN else f", not within {WITHIN:.0%}"
    times = f"predicted {predicted_us / 1e3:5.1f} ms, measured {measured_us / 1e3:5.1f} ms"
    return f"{name:28} {times}, {error:+.1%}{missed}"


def report(every: Sequence[Call], steps: bool) -> str:
    """A line per call and one for the layer; with `steps`, the predicted time of each operator alone."""
    lines = []
    for call in every:
        lines.append(_line(call.name, call.predicted_us, call.measured_us))
        lines += [f"    {step.predicted_us():9.0f} us  {step.label}" for step in call.steps if steps]
    lines.append(_line("layer", sum(c.predicted_us for c in every), sum(c.measured_us for c in every)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", action="store_true", help="print every operator's predicted time, alone")
    print(report(calls(), parser.parse_args().steps))


if __name__ == "__main__":
    main()
