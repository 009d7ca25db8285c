"""Tensors that one kernel writes and another one uses: what is kept of them on a chip is one memory for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from .index_maps import IntArray
from .kernel import Kernel
from .tensors import TensorPort


class CommonTensor(Struct, frozen=True):
    """A tensor that one kernel writes and another one uses.

    Attributes:
        users: the most tasks that use one memory of it.
        is_tiled: whether each tile is a memory of its own, since all kernels cut the tensor into the same tiles.
    """

    users: int
    is_tiled: bool


def common_tensors(kernels: Sequence[Kernel]) -> Mapping[str, CommonTensor]:
    """The tensors that one kernel writes and another one uses, by name."""
    uses: dict[str, list[tuple[Kernel, TensorPort, IntArray]]] = {}
    for kernel, port, pids in _ports(kernels):
        uses.setdefault(port.tensor.name, []).append((kernel, port, pids))
    found = {}
    for name, ports in uses.items():
        if len({kernel.name for kernel, *_ in ports}) > 1 and any(port.writes for _, port, _ in ports):
            is_tiled = len({(port.tile_shape, port.tile.grid) for _, port, _ in ports}) == 1
            tiles = np.concatenate([tile_of(port, pids) if is_tiled else 0 * pids[:, 0] for _, port, pids in ports])
            found[name] = CommonTensor(int(np.bincount(tiles).max(initial=0)), is_tiled)
    return found


def tile_of(port: TensorPort, pids: IntArray) -> IntArray:
    """The number of the tile that each of some tasks has of a tensor."""
    return port.tile.linear(pids) if port.tile.grid else np.zeros(len(pids), np.int64)


def _ports(kernels: Sequence[Kernel]) -> Iterable[tuple[Kernel, TensorPort, IntArray]]:
    """The tensors with a shape that classes use, with the pids of the tasks."""
    written = {p.tensor.name for k in kernels for c in k.classes for p in c.tensor_ports if p.writes}
    for kernel in kernels:
        if written.isdisjoint(tensor.name for tensor in kernel.args):
            continue
        pids = np.argwhere(np.ones(kernel.mesh, bool)).astype(np.int64)
        classes = kernel.class_of(pids)
        for number, task_class in enumerate(kernel.classes):
            for port in task_class.tensor_ports:
                if port.tensor.name in written and port.tensor.shape and (port.reads or port.writes):
                    yield kernel, port, pids[classes == number]
