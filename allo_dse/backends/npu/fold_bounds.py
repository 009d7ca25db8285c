"""Lower bounds of a fold's needs, known before the folded graph is built.

Each is a lower bound of the needs in `NpuMapping.violations`, so leaving out folds that exceed a limit never loses
one that fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.axes import class_varies
from allo_dse.mapper.fold.fold_space import Needs
from allo_dse.mapper.graph.ports import PortKey, PortSide, port_key
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Buffering, Violation

from .movement.access import misaligned_tiles
from .movement.assignment import ColumnLimits
from .movement.transport import column_limits

Sizes = Sequence[int]
"""Nodes along each mesh axis of a kernel."""


class NpuFoldBounds(Frozen, eq=False, dict=True):
    """Lower bounds of a program's folds on a device.

    Args:
        buffering: what every design has at least.
    """

    graph: ProgramGraph
    device: NpuDevice
    buffering: Buffering = field(default_factory=lambda: Buffering(output_depth=1))

    @property
    def program(self) -> CompiledProgram:
        return self.graph.program

    @property
    def nothing(self) -> Needs:
        """The needs of no kernel."""
        return 0, 0, 0, 0, 0

    def fits(self, needs: Needs) -> bool:
        """Return whether the array has enough for the kernels' total needs."""
        return self._limits.fit(needs[1:])

    @cached_property
    def _limits(self) -> ColumnLimits:
        return column_limits(self.device)

    def needs(self, kernel: int, sizes: Sizes) -> Needs:
        """Return the least that moving a kernel's tiles takes on a number of nodes per axis.

        Entries are nodes, which is 0 here, input flows, input transfers, output flows, and output transfers.

        Along an axis that a tensor is distributed on, nodes work on different tiles, and each tile is a flow of its
        own. Every node that writes has its own flow. Tensors that several kernels use count once.
        """
        flows: dict[str, list[int]] = {"in": [], "out": []}
        for side in self.moved[kernel]:
            alike, way = self.alike(kernel, side), side.key[1]
            apart = (axis for axis in alike if way == "out" or side.port.tile.depends_on(axis))
            flows[way].append(math.prod(sizes[axis] for axis in apart))
        return (0, *self._limits.totals(tuple(flows["in"]), tuple(flows["out"])))

    def alike(self, kernel: int, side: PortSide) -> list[int]:
        """The mesh axes along which all tasks of a kernel use a port if one does."""
        varying = set() if side.key in self._used[kernel][False] else self._varying[kernel]
        return [axis for axis in range(len(self.program.kernels[kernel].mesh)) if axis not in varying]

    def tiles(self, kernel: int, side: PortSide) -> int:
        """Return the least number of different tiles of a tensor that a kernel's tasks need."""
        mesh = self.program.kernels[kernel].mesh
        return math.prod(mesh[axis] for axis in self.telling(kernel, side))

    def telling(self, kernel: int, side: PortSide) -> list[int]:
        """Mesh axes along which tasks of a kernel surely use different tiles, at any place of the other axes."""
        tile = side.port.tile
        if not tile.is_affine or any(sum(map(bool, row)) > 1 for row in tile.matrix):
            return []
        # With one axis for each coordinate of a tile, no move along another axis takes back a move along this one.
        return [axis for axis in self.alike(kernel, side) if tile.depends_on(axis)]

    def core_bytes(self, members: Sequence[tuple[int, Sizes]], buffering: Buffering) -> int:
        """Return a lower bound of the data memory of some core that runs the kernels that share it."""
        every = [
            {side.key: side.port for side in ports.sides}
            for kernel, _ in members
            for ports in self.graph.ports.classes[kernel]
        ]
        # Some core runs the class with the largest ports. Every core has the ports that all classes use.
        used = max(_fifo_bytes(sides, buffering) for sides in (self._sides(members), *every))
        return self.device.reserved_core_bytes + used

    def _sides(self, members: Sequence[tuple[int, Sizes]]) -> dict[PortKey, TensorPort]:
        """Return the tensor ports of every core that runs the kernels that share it."""
        sides: dict[PortKey, TensorPort] = {}
        for kernel, sizes in members:
            every = all(sizes[axis] == 1 for axis in self._varying[kernel])
            sides.update(self._used[kernel][every])
        return sides

    def core_fits(self, members: Sequence[tuple[int, Sizes]]) -> bool:
        """Return whether a core has the channels and the memory for the tensor ports of the kernels that share it."""
        return _ports_fit(self._sides(members), self.device, self.buffering)

    def tasks_fit(self, tasks: Sequence[int]) -> bool:
        """Return whether a core has the channels and the memory for the tensor ports of some tasks."""
        sides: dict[PortKey, TensorPort] = {}
        for task in tasks:
            sides.update(self._task_ports[task])
        return _ports_fit(sides, self.device, self.buffering)

    @cached_property
    def _task_ports(self) -> list[dict[PortKey, TensorPort]]:
        """The tensor ports of every task."""
        result = []
        for number, (kernel, classes) in enumerate(zip(self.program.kernels, self.graph.ports.classes, strict=True)):
            own = [{side.key: side.port for side in ports.sides} for ports in classes]
            tasks = np.arange(self.program.first_task[number], self.program.first_task[number + 1])
            result += [own[cls] for cls in kernel.class_of(self.program.pids(number, tasks)).tolist()]
        return result

    @cached_property
    def _varying(self) -> list[set[int]]:
        """Per kernel the axes along which tasks are of different classes."""
        return [{axis for axis in range(len(k.mesh)) if class_varies(k, axis)} for k in self.program.kernels]

    @cached_property
    def _used(self) -> list[tuple[dict[PortKey, TensorPort], dict[PortKey, TensorPort]]]:
        """Per kernel the tensor ports that all of its classes use, and those that any of them uses."""
        result = []
        for classes in self.graph.ports.classes:
            own = [{side.key: side.port for side in ports.sides} for ports in classes]
            common = {key: port for key, port in own[0].items() if all(key in other for other in own)}
            result.append((common, {key: port for ports in own for key, port in ports.items()}))
        return result

    @cached_property
    def moved(self) -> list[list[PortSide]]:
        """Per kernel the ports of tensors that no kernel before it moves in the same direction."""
        seen: set[tuple[str, str]] = set()
        result = []
        for classes in self.graph.ports.classes:
            own: dict[tuple[str, str], PortSide] = {}
            for ports in classes:
                # A later kernel may need the same tiles in step and share the flow: only the first is sure to have one.
                own.update({side.key[:2]: side for side in ports.sides if side.key[:2] not in seen})
            seen |= own.keys()
            result.append(list(own.values()))
        return result


def task_excess(ports: Iterable[TensorPort], device: NpuDevice, buffering: Buffering) -> Violation | None:
    """Return the limit of a core that the tensor ports of a task exceed; None if they fit."""
    sides = {port_key(port, way): port for port in ports for way in port.directions}
    if _ports_fit(sides, device, buffering):
        return next(misaligned_tiles(sides.values()), None)
    core = device.core
    for constraint, way, limit in (("core_dma_in", "in", core.dma_in), ("core_dma_out", "out", core.dma_out)):
        names = [port.tensor.name for key, port in sides.items() if key[1] == way]
        if len(names) > limit:
            return Violation(constraint, "a core", len(names), limit, ", ".join(names))
    needed = device.reserved_core_bytes + _fifo_bytes(sides, buffering)
    names = list(dict.fromkeys(port.tensor.name for port in sides.values()))
    return Violation("core_memory", "a core", needed, core.memory_bytes, f"tiles of {', '.join(names)}")


def _ports_fit(sides: Mapping[PortKey, TensorPort], device: NpuDevice, buffering: Buffering) -> bool:
    core = device.core
    inputs = sum(key[1] == "in" for key in sides)
    return (
        inputs <= core.dma_in
        and len(sides) - inputs <= core.dma_out
        and device.reserved_core_bytes + _fifo_bytes(sides, buffering) <= core.memory_bytes
    )


def _fifo_bytes(sides: Mapping[PortKey, TensorPort], buffering: Buffering) -> int:
    """Data memory of the object FIFOs of some ports of one core."""
    depth = {"in": buffering.input_depth, "out": buffering.output_depth}
    return sum(depth[key[1]] * port.tile_bytes for key, port in sides.items())
