"""Prefill of language models as mlir-air maps it by hand: what the model predicts against what was measured.

    python -m benchmarks.llama_layer [--steps]

Prefill of 2,048 tokens on XDNA2, bfloat16. The mapping is that of mlir-air e972f29 (`programming_examples/llms`): three
calls of 7, 1 and 12 programs after each other, each on all columns, of which products in two of them have a second
program that casts their result. The operators are those of `npu_cases.py`, with the constants of the device files,
of which none was fitted to a whole layer. Predicted times of programs after the first contain their beginning.

The host copies the inputs of each call, but for weights, into its buffers, which mlir-air's times contain
(`llms/shared/infra/cache.py`, `load_and_run`).

Three calls of Llama-3.2-1B were measured by themselves; of other models, the time of the NPU in all layers. Tiles
follow from the sizes, as in mlir-air's registry of kernels. These measurements lie in ../shared/facts; without them
only the layer is compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.npu_cases import MEASURED, Case, npu2_case, rows_of

TOKENS = 2048
COPY_GB_S = 10.0
"""Rate at which a thread of the host copies inputs of a call, 1e9 bytes per second: assumed. Each of five models would
say 3.4 to 23."""
WITHIN = 0.15
"""How far off a prediction of one of the three calls may be."""


@dataclass(frozen=True)
class Call:
    """What one call does, one operator after another.

    Attributes:
        measured_us: of the NPU, per layer, mlir-air e972f29.
        copied: elements of bfloat16 that the host copies into its buffers.
    """

    name: str
    measured_us: float
    steps: tuple[Case, ...]
    copied: int

    @property
    def predicted_us(self) -> float:
        """Programs after the first of a call are begun within it."""
        designs = tuple(design for step in self.steps for design in step.designs)
        relaunches = sum(step.relaunches for step in self.steps)
        copied_us = 2 * self.copied / (COPY_GB_S * 1e3)
        return copied_us + Case("", self.name, designs, self.measured_us, relaunches=relaunches).predicted_us()


def _operator(op: str, shape: str, tile: str = "row", rows: int = 1) -> Case:
    fields = {"op": op, "shape": shape, "columns": "8", "rows": str(rows), "tile": tile}
    return npu2_case({**fields, "dtype": "bf16->bf16"}, 0.0)


@dataclass(frozen=True)
class Model:
    """Sizes of a language model, from its published configuration: layers, embedding, hidden, heads, key-value heads,
    and the length of a head."""

    layers: int
    width: int
    hidden: int
    heads: int
    pairs: int
    head: int

    def calls(self, measured_us: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> tuple[Call, ...]:
        """The three calls of a layer."""
        width, hidden, queries = self.width, self.hidden, self.heads * self.head
        norm, add = _operator("rms_norm", f"{TOKENS}x{width}"), _operator("add", str(TOKENS * width), "2048")
        to_keys, gate = _product(width, self.pairs * self.head), _product(width, hidden)
        turns = [_operator("rope", f"{TOKENS * heads}x{self.head}") for heads in (self.heads, self.pairs)]
        attention = f"{TOKENS}x{TOKENS} d{self.head} heads {self.heads}/{self.pairs} causal"
        gated = _operator("silu_mul", str(TOKENS * hidden), "4096")
        before = (norm, _product(width, queries), to_keys, to_keys, *turns)
        after = (_product(queries, width), add, norm, gate, gate, gated, _product(hidden, width), add)
        attend = (_operator("attention", attention, "64", rows=4),)
        read = queries + 2 * self.pairs * self.head
        return (
            Call("norm, Q, K, V, RoPE", measured_us[0], before, TOKENS * width),
            Call("attention", measured_us[1], attend, TOKENS * read),
            Call("output, add, norm, FFN, add", measured_us[2], after, TOKENS * (queries + width)),
        )

    @property
    def predicted_us(self) -> float:
        return self.layers * sum(call.predicted_us for call in self.calls())


MODELS = {
    "Llama-3.2-1B": Model(16, 2048, 8192, 32, 8, 64),
    "Llama-3.2-3B": Model(28, 3072, 8192, 24, 8, 128),
    "Qwen2.5-0.5B": Model(24, 896, 4864, 14, 2, 64),
    "Qwen2.5-1.5B": Model(28, 1536, 8960, 12, 2, 128),
    "Qwen2.5-3B": Model(36, 2048, 11008, 16, 2, 128),
    "Qwen3-0.6B": Model(28, 1024, 3072, 16, 8, 128),
    "Qwen3-1.7B": Model(28, 2048, 6144, 16, 8, 128),
    "Qwen3-4B": Model(36, 2560, 9728, 32, 8, 128),
    "SmolLM2-1.7B": Model(24, 2048, 8192, 32, 32, 64),
}


def _product(depth: int, columns: int) -> Case:
    """A product of all tokens: narrow ones are cast while they leave the cores, wide ones have sums of float32 in DRAM
    and a second program, and those whose blocks do not fill the cores are the compiler's."""
    tile = next(n for n in (128, 64, 32) if columns % (4 * n) == 0)
    outer = next(k for k in (256, 128, 64) if depth % k == 0)
    if columns <= 1024:
        return _operator("gemm_drain", f"{TOKENS}x{depth}x{columns}", f"32x32x{tile} (L2 k {min(outer, 256)})", rows=4)
    if tile < 128:
        return _operator("gemm_direct", f"{TOKENS}x{depth}x{columns}", f"64x32x{tile} (L2 k {min(outer, 128)})", rows=4)
    outer = 512 if depth == columns and depth % 512 == 0 else outer
    return _operator("gemm_fused-cast", f"{TOKENS}x{depth}x{columns}", f"64x32x128 (L2 k {outer})", rows=4)


def calls() -> tuple[Call, ...]:
    """The three calls of a layer of Llama-3.2-1B."""
    return MODELS["Llama-3.2-1B"].calls((7300.0, 21600.0, 41000.0))


def measured_models() -> dict[str, float]:
    """Microseconds of the NPU in all layers of a model, mlir-air e972f29; empty without the measurements."""
    path = MEASURED / "more_a.csv"
    rows = list(rows_of(path)) if path.is_file() else []
    return {row["shape"]: float(row["measured_us"]) for row in rows if row["op"] == "prefill"}


def _line(name: str, predicted_us: float, measured_us: float) -> str:
    error = predicted_us / measured_us - 1
    missed = "" if abs(error) <= WITHIN else f", not within {WITHIN:.0%}"
    times = f"predicted {predicted_us / 1e3:5.1f} ms, measured {measured_us / 1e3:5.1f} ms"
    return f"{name:28} {times}, {error:+.1%}{missed}"


def report(every: Sequence[Call], steps: bool) -> str:
    """A line per call, for the layer and for each model; with `steps`, the predicted time of each operator alone."""
    lines = []
    for call in every:
        lines.append(_line(call.name, call.predicted_us, call.measured_us))
        lines += [f"    {step.predicted_us():9.0f} us  {step.label}" for step in call.steps if steps]
    lines.append(_line("layer", sum(c.predicted_us for c in every), sum(c.measured_us for c in every)))
    for name, measured_us in measured_models().items():
        if name in MODELS:
            lines.append(_line(f"{name}, {MODELS[name].layers} layers", MODELS[name].predicted_us, measured_us))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", action="store_true", help="print every operator's predicted time, alone")
    print(report(calls(), parser.parse_args().steps))


if __name__ == "__main__":
    main()
