"""Does the model order the design points of a ResNet layer on a Ryzen 7940 as they were measured?

    python -m benchmarks.resnet_points

The talk on Allo lists nine versions of a bottleneck layer (tile, SIMD lanes, instruction pipelining, cores, time). It
does not say how large the layer is, what the tile's two numbers count, or what pipelining gains. Assumed here: the
layer of `studies/resnet_npu.py`; a tile is pixels by output channels of one kernel call, which costs the same however
small it is; lanes are multiply-accumulates a cycle; and without pipelining the inner loop takes twice as long. So the
times are not comparable, but every step changes one thing, and the model has to find that it helps.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from allo_dse import AxisFold, Buffering, Design, Device, KernelFold, MeshFold, NpuSimulator, load_program
from allo_dse.lang import install

install()

from studies.resnet_npu import DEVICE, bottleneck

CALL_CYCLES = 300
NOT_PIPELINED = 0.5
ACCUMULATE = 0.148


@dataclass(frozen=True)
class Point:
    """A design point of the talk: `cores` is 3, 4 or 8 of the 20 that the talk counts."""

    name: str
    tile: tuple[int, int]
    lanes: int
    pipelined: bool
    cores: int
    measured_ms: float


POINTS = (
    Point("D1", (16, 16), 1, False, 3, 57.40),
    Point("D2", (16, 16), 4, False, 3, 16.63),
    Point("D3", (16, 16), 8, False, 3, 9.82),
    Point("D4", (16, 16), 8, False, 4, 9.18),
    Point("D5", (16, 16), 8, True, 4, 8.44),
    Point("D6", (32, 16), 8, True, 4, 5.72),
    Point("D7", (32, 32), 8, True, 4, 5.21),
    Point("D8", (32, 64), 8, True, 4, 4.99),
    Point("D9", (32, 64), 8, True, 8, 3.16),
)


def device(point: Point, directory: Path) -> Device:
    """The study's device with the kernels of a point."""
    rows, channels = point.tile
    per_element = ACCUMULATE + CALL_CYCLES / (rows * channels)
    cost = (
        f"{{ peak_mac_per_cycle = {point.lanes}.0, efficiency = {1.0 if point.pipelined else NOT_PIPELINED}, "
        f"accumulate_cycles_per_element = {per_element}, call_cycles = 0.0 }}"
    )
    path = directory / f"{point.name}.toml"
    path.write_text(
        f'extends = "{DEVICE}"\nkernel_library = "talk"\n'
        f"[reserved_bytes]\ntalk = 3328\n[kernels.talk]\ni8 = {cost}\nother = {cost}\n"
    )
    return Device.load(path)


def modelled_ms(point: Point, directory: Path) -> float:
    """What the simulator says a point takes, in milliseconds."""
    program = load_program(bottleneck, P=2)
    images, split = (2 if point.cores == 8 else 1), (1 if point.cores == 3 else 2)
    image = AxisFold(images, "cyclic")
    axes = {"conv1": (image, AxisFold(1)), "conv2": (image, AxisFold(split)), "conv3": (image, AxisFold(1))}
    fold = MeshFold(tuple(KernelFold(name, own) for name, own in axes.items())).normalised(program.vmg.graph)
    assert fold.node_count == point.cores
    design = Design(program, fold, Buffering(output_depth=1), device(point, directory))
    return float(NpuSimulator().evaluate(design).latency_us) / 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        modelled = [modelled_ms(point, Path(directory)) for point in POINTS]
    print(f"{'':<4}{'tile':>8}{'lanes':>7}{'pipelined':>11}{'cores':>7}{'measured ms':>13}{'modelled ms':>13}")
    for point, found in zip(POINTS, modelled, strict=True):
        tile = f"{point.tile[0]}x{point.tile[1]}"
        row = f"{point.name:<4}{tile:>8}{point.lanes:>7}{'yes' if point.pipelined else 'no':>11}{point.cores:>7}"
        print(f"{row}{point.measured_ms:>13.2f}{found:>13.2f}")
    ordered = all(a > b for a, b in itertools.pairwise(modelled))
    print(f"ordered as measured: {'yes' if ordered else 'NO'}")


if __name__ == "__main__":
    main()
