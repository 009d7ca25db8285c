"""Numbers of a device that measurements can be fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from allo_dse.common.records import Frozen
from allo_dse.device.device import Device
from allo_dse.space.design import Design

AnyDevice = TypeVar("AnyDevice", bound=Device)


class Scale(Frozen):
    """Scale on which a number varies: its logarithm between limits, after an offset for numbers that can be zero.

    Attributes:
        whole: whether it is an integer.
    """

    offset: float = 0.0
    low: float = 0.0
    high: float = math.inf
    whole: bool = False


class Parameter(Frozen):
    """A number of a device: `("board", "launch_us")`, `("kernels", "allo", "bf16", "efficiency")`.

    A fit moves `log(value + offset)`: numbers that can be zero grow from there by their offset at first.
    """

    path: tuple[str, ...]
    scale: Scale = Scale()

    def __str__(self) -> str:
        return ".".join(self.path)

    def of(self, device: Device) -> float:
        """Its value."""
        node: object = device
        for name in self.path:
            node = node[name] if isinstance(node, Mapping) else getattr(node, name)
        assert isinstance(node, float | int)
        return float(node)

    def coordinate(self, value: float) -> float:
        return math.log(value + self.scale.offset)

    def value(self, coordinate: float) -> float:
        """The value of a coordinate, within the limits."""
        free = math.exp(coordinate) - self.scale.offset
        within = min(max(free, self.scale.low), self.scale.high)
        return round(within) if self.scale.whole else within

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest coordinate."""
        least = self.scale.low + self.scale.offset
        return (math.log(least) if least else -math.inf), math.log(self.scale.high)

    def spread(self, value: float, deviation: float) -> float:
        """Standard deviation of the value, from that of its coordinate."""
        return (value + self.scale.offset) * deviation


def with_values(device: AnyDevice, values: Mapping[Parameter, float]) -> AnyDevice:
    """The device with other numbers."""
    for parameter, value in values.items():
        device = _replaced(device, parameter.path, value)
    return device


def _replaced(node: Any, path: tuple[str, ...], value: float) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, Mapping):
        return {**node, head: _replaced(node[head], rest, value)}
    return node.model_copy(update={head: _replaced(getattr(node, head), rest, value)})


class Tunable(Protocol):
    """The numbers of a kind of device that its measurements can be fitted to."""

    def parameters(self, designs: Iterable[Design], device: Device) -> Sequence[Parameter]:
        """Return the parameters that the times of designs can depend on."""

    def settings(self, device: Device) -> object:
        """Return all numbers that differ from board to board; measurements of equal ones are fitted together."""

    def named(self, device: Device) -> dict[str, str]:
        """Return the names of the settings' owners: "device", and others such as "board"."""

    def alike(self, device: Device, measured: Device) -> Device:
        """Return a device with the board and options that another one was measured with, as far as it has them."""

    def text(self, found: Any, base: Device, extends: str) -> str:
        """Return a calibration (`eval.calibrate`) as a device file that extends the one that was calibrated.

        Args:
            extends: how the file refers to `base`.
        """
