"""NPUs for networks: operators side by side on columns, launched one set after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import NpuDevice
from allo_dse.eval.launches import Launches, Part
from allo_dse.space.design import Design

from .evaluator import NpuSimulator
from .mapping import NpuMapping
from .network import ends_together


class NpuLaunches(Launches):
    """Launches on an NPU. Any neighbouring columns will do for a design of as many columns."""

    device: NpuDevice

    def __init__(self, device: NpuDevice) -> None:
        super().__init__(device)
        self.columns = device.array.columns
        self.limits = (device.array.columns,)
        self.call_us, self.between_us = device.launch_us, device.board.relaunch_us
        self.dram_gb_s = device.board.dram_gb_s

    def configuring_us(self, target: str) -> float:
        """Allo's host program configures the array for every call."""
        return self.device.board.reconfigure_us if target == "allo" else 0.0

    def parts(self) -> Iterator[tuple[int, NpuDevice]]:
        """Yield the powers of two below the number of columns, and the number itself."""
        width = 1
        while width < self.columns:
            yield width, on_columns(self.device, width)
            width *= 2
        yield self.columns, on_columns(self.device, self.columns)

    def bandwidth(self, latency_us: float, dram_bytes: int, bound: Mapping[str, float]) -> float:
        """Return the share of time in which the DRAM is busy, in its busier direction."""
        return bound.get("DRAM", 0.0)

    def ends_us(self, parts: Sequence[Part]) -> list[float]:
        """Simulate parts of a launch together, tile by tile over one DRAM."""
        return ends_together(parts, self.device)

    def reading(self, design: Design, orders: Mapping[str, IntArray]) -> tuple[Any, Mapping[str, Any]] | None:
        """Return the transport plan for tensors in another order, if descriptors can express it, and the metrics."""
        transport = NpuMapping.of(design).reading(orders)
        return None if isinstance(transport, str) else (transport, NpuSimulator().moved(design, transport))


def on_columns(device: NpuDevice, columns: int) -> NpuDevice:
    """Return the device with fewer columns."""
    return device.model_copy(update={"array": device.array.model_copy(update={"columns": columns})})
