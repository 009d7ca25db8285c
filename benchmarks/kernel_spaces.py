"""Synthetic spaces of tuned kernels, with costs that are tabulated: what the sampler is measured on.

Structure is that of published tuning spaces (block and tile sizes, unrolling, vector widths, flags; stated
restrictions; failures that nobody states; cliffs of occupancy and spilling), numbers are drawn. Each family has as many
spaces as there are seeds. The sampler's constants were chosen on the families of `SEEN`; those of `UNSEEN` only judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Columns = dict[str, Floats]
Values = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class KernelSpace:
    """A space whose costs are all known.

    Attributes:
        values: of each parameter.
        positions: of the designs that restrictions allow, (designs, parameters).
        losses: (designs, objectives); infinite where a design fails.
    """

    name: str
    values: Values
    positions: Integers
    losses: Floats

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {row.tobytes(): n for n, row in enumerate(self.positions)}

    def find(self, design: Sequence[int]) -> int | None:
        """The row of a design; None when a restriction forbids it."""
        return self._index.get(np.array(design, np.int64).tobytes())

    def expected_best(self, evaluations: int) -> float:
        """What the best of so many designs drawn at random costs on average; failures count as the worst cost."""
        column = self.losses[:, 0]
        costs = np.sort(np.where(np.isfinite(column), column, column[np.isfinite(column)].max()))
        logarithms = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, len(costs) + 1)))))
        left = len(costs) - np.arange(len(costs))  # designs that are no better
        ways = logarithms[left] - logarithms[np.maximum(left - evaluations, 0)]
        all_ways = logarithms[len(costs)] - logarithms[len(costs) - evaluations]
        at_least = np.where(left >= evaluations, np.exp(ways - all_ways), 0.0)
        return float(((at_least - np.append(at_least[1:], 0.0)) * costs).sum())


def _listed(values: Values, allowed: Callable[[Columns], Booleans]) -> tuple[Integers, Columns]:
    """Positions of all designs that are allowed, and their values by name."""
    sizes = [len(of) for of in values.values()]
    positions = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), 1).astype(np.int64)
    columns = {name: np.array(of, float)[positions[:, n]] for n, (name, of) in enumerate(values.items())}
    kept = allowed(columns)
    return positions[kept], {name: column[kept] for name, column in columns.items()}


def _rugged(positions: Integers, rng: np.random.Generator, scale: float) -> Floats:
    """Random effects of values, of three pairs of values, and of designs, as a factor."""
    found = rng.normal(0, 0.4 * scale, len(positions))
    for column in positions.T:
        found += rng.normal(0, scale, int(column.max()) + 1)[column]
    for _ in range(3):
        one, other = (positions[:, n] for n in rng.choice(positions.shape[1], 2, replace=False))
        found += rng.normal(0, scale, (int(one.max()) + 1, int(other.max()) + 1))[one, other]
    return np.exp(found)


def gpu_tiles(seed: int) -> KernelSpace:
    """Threads, work per thread and staging on a GPU: registers and shared memory limit how many blocks run at once."""
    r = np.random.default_rng((1, seed))
    values = {
        "bx": [1, 2, 4, 8, *range(16, 257, 16)], "by": [1, 2, 4, 8, 16, 32], "tx": [1, 2, 3, 4, 6, 8],
        "ty": [1, 2, 3, 4, 6, 8], "unroll": [0, 1, 2, 4, 8], "shared": [0, 1], "vec": [1, 2, 4],
    }  # fmt: skip

    def shared_bytes(v: Columns) -> Floats:
        return 4 * v["shared"] * (v["bx"] * v["tx"] + 8) * (v["by"] * v["ty"] + 8)

    def allowed(v: Columns) -> Booleans:
        threads = v["bx"] * v["by"]
        kept: Booleans = (threads <= 1024) & (threads >= 32) & (v["tx"] % v["vec"] == 0) & (shared_bytes(v) <= 49152)
        return kept

    positions, v = _listed(values, allowed)
    warps, work = np.ceil(v["bx"] * v["by"] / 32), v["tx"] * v["ty"]
    registers = 18 + work * r.uniform(1, 3) + v["unroll"] * r.uniform(1, 3)
    by_memory = np.floor(98304 / np.maximum(shared_bytes(v), 4096))
    blocks = np.minimum(np.minimum(np.floor(2048 / (registers * warps)), by_memory), np.floor(64 / warps))
    occupancy = np.maximum(blocks, 0.1) * warps / 64
    reuse = np.where(v["shared"] > 0, np.sqrt(work * v["bx"] * v["by"]) / r.uniform(6, 14), np.sqrt(work))
    memory = 1 / (np.minimum(1, v["bx"] * v["vec"] / 32) * np.minimum(reuse, r.uniform(4, 12)))
    spilled = 1 + np.maximum(0, registers - 128) / r.uniform(16, 64)
    compute = spilled * (1 + 0.3 / np.maximum(1, v["unroll"])) / np.minimum(1, occupancy * r.uniform(1.5, 3))
    loss = (np.maximum(memory, compute) + 0.25 * (memory + compute)) * _rugged(positions, r, 0.03)
    return KernelSpace("gpu_tiles", values, positions, np.where(blocks < 1, np.inf, loss)[:, None])


def blas_needles(seed: int) -> KernelSpace:
    """A matrix product whose tiles must divide each other: one in twenty designs is allowed."""
    r = np.random.default_rng((2, seed))
    few, vectors = [8, 16, 32], [1, 2, 4, 8]
    values = {
        "M": [16, 32, 64, 128], "N": [16, 32, 64, 128], "K": [16, 32], "mc": few, "nc": few, "ma": few, "nb": few,
        "vm": vectors, "vn": vectors, "sa": [0, 1], "sb": [0, 1],
    }  # fmt: skip

    def allowed(v: Columns) -> Booleans:
        whole: Booleans = (v["M"] % (v["mc"] * v["vm"]) == 0) & (v["N"] % (v["nc"] * v["vn"]) == 0)
        whole &= (v["M"] % (v["ma"] * v["vm"]) == 0) & (v["N"] % (v["nb"] * v["vn"]) == 0)
        threads = v["mc"] * v["nc"]
        whole &= (v["K"] % np.maximum(1, threads // v["ma"]) == 0) & (threads >= 64)
        return whole

    positions, v = _listed(values, allowed)
    rows, columns, threads = v["M"] / v["mc"], v["N"] / v["nc"], v["mc"] * v["nc"]
    registers, intensity = rows * columns + rows + columns + 20, rows * columns / (rows + columns)
    occupancy = np.minimum(np.floor(65536 / (np.maximum(registers, 32) * threads)), np.floor(2048 / threads))
    feed = 1 / np.minimum(1, np.maximum(0.02, occupancy * threads / 2048 * r.uniform(1.5, 4)))
    loss = (feed / np.minimum(intensity, 4) + r.uniform(0.5, 2) / intensity) * _rugged(positions, r, 0.04)
    for stage, side in (("sa", "M"), ("sb", "N")):
        loss *= 1 + r.uniform(0.2, 0.8) * (1 - v[stage]) * np.sqrt(128 / v[side])
    for vector in ("vm", "vn"):
        loss *= 1 + r.uniform(0.1, 0.4) * abs(np.log2(v[vector]) - r.integers(0, 4))
    return KernelSpace("blas_needles", values, positions, np.where(registers > 255, np.inf, loss)[:, None])


def stencil_in_time(seed: int) -> KernelSpace:
    """A stencil of several steps at once: halos grow with the steps, and tiles spill registers."""
    r = np.random.default_rng((3, seed))
    values = {
        "bx": [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512], "by": [1, 2, 4, 8, 16, 32], "tx": list(range(1, 9)),
        "ty": list(range(1, 9)), "steps": [1, 2, 4, 5, 6, 8, 10], "shared": [0, 1], "blocks": [0, 1, 2, 4],
    }  # fmt: skip

    def allowed(v: Columns) -> Booleans:
        threads, wide, high = v["bx"] * v["by"], v["bx"] * v["tx"], v["by"] * v["ty"]
        fits = (wide > 2 * v["steps"]) & (high > 2 * v["steps"]) & (8 * wide * high * v["shared"] <= 98304)
        return fits & (threads >= 32) & (threads <= 1024)

    positions, v = _listed(values, allowed)
    threads, wide, high = v["bx"] * v["by"], v["bx"] * v["tx"], v["by"] * v["ty"]
    useful = (wide - 2 * v["steps"] + 2) * (high - 2 * v["steps"] + 2) / (wide * high)
    registers, most = 24 + v["tx"] * v["ty"] * r.uniform(1.5, 2.5), np.full(len(threads), 255.0)
    limited = v["blocks"] > 0
    most[limited] = np.minimum(255, 65536 / (v["blocks"] * threads)[limited])
    by_memory = np.floor(163840 / np.maximum(8 * wide * high * v["shared"], 4096))
    blocks = np.minimum(np.floor(65536 / (np.minimum(registers, most) * threads)), by_memory)
    occupancy = np.maximum(0.5, np.minimum(blocks, np.floor(2048 / threads))) * threads / 2048
    memory = 1.2 / v["steps"] / np.minimum(1, v["bx"] / 32)
    compute = 0.35 * (1 + np.maximum(0, registers - most) / r.uniform(10, 40)) / np.minimum(1, 3 * occupancy)
    compute *= np.where(v["shared"] > 0, 1, r.uniform(1.1, 2))
    loss = (np.maximum(memory, compute) + 0.3 * np.minimum(memory, compute)) / useful * _rugged(positions, r, 0.04)
    return KernelSpace("stencil_in_time", values, positions, np.where(blocks < 1, np.inf, loss)[:, None])


def interacting(seed: int) -> KernelSpace:
    """Parameters whose effects depend on two others each, a restriction without order, and a corner that fails."""
    r = np.random.default_rng((4, seed))
    sizes = r.integers(2, 6, int(r.integers(7, 10)))
    values = {f"q{n}": list(range(size)) for n, size in enumerate(sizes.tolist())}
    a, b, c, d, e = (f"q{n}" for n in r.choice(len(sizes), 5, replace=False))
    positions, v = _listed(values, lambda v: ((v[a] + v[b]) % 3 != 1) | (v[c] == 0))
    effect = np.zeros(len(positions))
    for n, size in enumerate(sizes.tolist()):
        three = [n, *r.choice([m for m in range(len(sizes)) if m != n], 2, replace=False).tolist()]
        together = r.normal(0, 1, [int(sizes[m]) for m in three])[tuple(positions[:, m] for m in three)]
        effect += (r.normal(0, 1.2, size)[positions[:, n]] + 0.5 * together) * r.gamma(1.5, 0.5)
    loss = np.exp(0.5 * effect / effect.std() + r.normal(0, 0.02, len(effect)))
    fails = (v[d] == v[d].max()) & (v[e] == 0)
    return KernelSpace("interacting", values, positions, np.where(fails, np.inf, loss)[:, None])


def pipelines(seed: int) -> KernelSpace:
    """Cycles against area of a pipeline on an FPGA; half of the designs fail, and nobody says which."""
    r = np.random.default_rng((5, seed))
    many = [1, 2, 3, 4, 6, 8, 12, 16]
    values = {"tile": list(range(32, 1025, 32)), "op": many, "ip": many, "pipe": [0, 1], "par": [1, 2, 4, 8, 16]}
    positions, v = _listed(values, lambda v: v["tile"] > 0)
    lanes = v["op"] * v["ip"]
    area = 2000 + lanes * r.uniform(200, 400) * (1 + 0.4 * v["pipe"]) + v["tile"] * r.uniform(1, 4) + 300 * v["par"]
    cycles = 1e6 / lanes * (1 + r.uniform(1, 3) * (1 - v["pipe"])) * (1 + 64 / v["tile"])
    cycles += 1e6 / (v["par"] * r.uniform(4, 10)) + v["op"] * r.uniform(500, 2000)
    fails = ((v["tile"] % (32 * v["ip"]) != 0) & (v["ip"] > 4)) | (v["tile"] * v["op"] > 6000) | (area > 60000)
    losses = np.stack([cycles * _rugged(positions, r, 0.015), area * _rugged(positions, r, 0.01)], 1)
    return KernelSpace("pipelines", values, positions, np.where(fails[:, None], np.inf, losses))


def arrays(seed: int) -> KernelSpace:
    """Cycles against area of a systolic array; a quarter of the designs fails."""
    r = np.random.default_rng((6, seed))
    sides = [1, 2, 4, 8, 12, 16, 24, 32]
    values = {
        "rows": sides, "cols": sides, "depth": [2, 4, 8, 16, 32], "bits": [8, 16, 32], "twice": [0, 1],
        "unroll": [1, 2, 3, 4, 6], "style": [2, 0, 1], "ii": [1, 2, 4],
    }  # fmt: skip
    positions, v = _listed(values, lambda v: (v["rows"] * v["cols"] <= 512) & (v["cols"] % v["unroll"] == 0))
    cells = v["rows"] * v["cols"]
    cycles = 1e5 / cells * v["ii"] * r.uniform(0.8, 1.2, 3)[v["style"].astype(int)] + 300 * (v["rows"] + v["cols"])
    cycles *= (1 + 0.5 * (1 - v["twice"])) * (1 + 4 / v["depth"])
    area = cells * v["bits"] * r.uniform(2, 4) / np.sqrt(v["ii"]) * (1 + 0.1 * v["unroll"])
    area += v["depth"] * v["cols"] * v["bits"] * (1 + v["twice"]) * r.uniform(0.2, 0.6)
    fails = (area > 0.45 * area.max()) | ((v["unroll"] >= 4) & (v["ii"] == 1)) | ((v["style"] == 2) & (v["depth"] < 8))
    losses = np.stack([cycles * _rugged(positions, r, 0.02), area * _rugged(positions, r, 0.01)], 1)
    return KernelSpace("arrays", values, positions, np.where(fails[:, None], np.inf, losses))


SEEN = (gpu_tiles, blas_needles, pipelines)
UNSEEN = (stencil_in_time, interacting, arrays)
