"""Numbers of a device file that a fit may change, and which of them the time of a design can depend on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct
from pydantic import BaseModel

from allo_dse.compiler.program.kernel import TileOp
from allo_dse.device.device import NpuDevice
from allo_dse.space.design import Design


class _Scale(Struct, frozen=True):
    """Scale on which a number varies: its logarithm between limits, after an offset for numbers that can be zero."""

    offset: float = 0.0
    low: float = 0.0
    high: float = math.inf


_BOARD = {
    "launch_us": _Scale(10.0),
    "launch_column_us": _Scale(1.0),
    "host_sync_gb_s": _Scale(),
    "dram_gb_s": _Scale(),
    "column_gb_s": _Scale(),
    "dram_burst_half_bytes": _Scale(16.0),
    "page_slowdown": _Scale(low=1.0),
    "host_rewrite_us": _Scale(1.0),
}
_KERNEL = {
    "efficiency": _Scale(high=1.0),
    "accumulate_cycles_per_element": _Scale(0.05),
    "call_cycles": _Scale(100.0),
    "task_cycles": _Scale(100.0),
    "result_cycles": _Scale(100.0),
}
_ELEMENTWISE = {"bytes_per_cycle": _Scale(), "call_cycles": _Scale(30.0)}
_SCALAR_LOOP = {"cycles_per_iteration": _Scale(), "task_cycles": _Scale(30.0)}


class Parameter(Struct, frozen=True):
    """A number of a device: `("board", "launch_us")`, `("kernels", "allo", "bf16", "efficiency")`.

    A fit moves `log(value + offset)`: numbers that can be zero grow from there by their offset at first.
    """

    path: tuple[str, ...]
    scale: _Scale = _Scale()

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def is_rate(self) -> bool:
        """Return whether the parameter is a rate, which limits nothing if it is large enough."""
        return self.path[-1].endswith("_gb_s")

    def of(self, device: NpuDevice) -> float:
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
        return min(max(free, self.scale.low), self.scale.high)

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest coordinate."""
        least = self.scale.low + self.scale.offset
        return (math.log(least) if least else -math.inf), math.log(self.scale.high)

    def spread(self, value: float, deviation: float) -> float:
        """Standard deviation of the value, from that of its coordinate."""
        return (value + self.scale.offset) * deviation


def with_values(device: NpuDevice, values: Mapping[Parameter, float]) -> NpuDevice:
    """The device with other numbers."""
    fields: dict[str, object] = {name: getattr(device, name) for name in type(device).model_fields}
    for parameter, value in values.items():
        head, *rest = parameter.path
        fields[head] = _replaced(fields[head], rest, value)
    return type(device).model_validate(fields)


def _replaced(node: object, path: list[str], value: float) -> object:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, Mapping):
        return {**node, head: _replaced(node[head], rest, value)}
    assert isinstance(node, BaseModel)
    return node.model_copy(update={head: _replaced(getattr(node, head), rest, value)})


def parameters_of(designs: Iterable[Design], device: NpuDevice) -> list[Parameter]:
    """Return the parameters that the times of designs can depend on: the board's terms and those of their kernels."""
    found: dict[tuple[str, ...], dict[str, _Scale]] = {("board",): _BOARD}
    for program in {id(design.program): design.program for design in designs}.values():
        for op in (op for cls in program.task_classes for op in cls.work):
            for path, terms in _costs(op, device).items():
                found.setdefault(path, terms)
    return [Parameter((*path, name), scale) for path, terms in found.items() for name, scale in terms.items()]


def _costs(op: TileOp, device: NpuDevice) -> dict[tuple[str, ...], dict[str, _Scale]]:
    """The entries of the device's tables that an operation's cycles come from."""
    if op.kind == "loop":
        return {("scalar_loop",): _SCALAR_LOOP}
    if op.kind == "matmul":
        kernel = device.matmul_kernel(op.dtypes, op.shape)
        return {
            ("kernels", library, name): _KERNEL
            for library, entries in device.kernels.items()
            for name, cost in entries.items()
            if cost is kernel
        }
    kind = op.kind if op.kind in device.elementwise else "other"
    return {("elementwise", kind): _ELEMENTWISE}
