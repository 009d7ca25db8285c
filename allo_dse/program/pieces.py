"""How a tensor is cut: kernels that use it may each cut it into tiles of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from .index_maps import IntArray
from .tasks import TaskClass
from .tensors import TensorPort

Grid = tuple[int, ...]


def piece_grids(classes: Iterable[TaskClass]) -> dict[str, Grid]:
    """By tensor, the fewest pieces along each dimension such that every tile of every port is made of whole pieces: the
    tiles themselves where all ports cut it alike."""
    found: dict[str, Grid] = {}
    for port in (port for own in classes for port in own.tensor_ports):
        name, own = port.tensor.name, _grid(port)
        found[name] = tuple(map(math.lcm, found[name], own)) if name in found else own
    return found


def ends_of(port: TensorPort, pids: IntArray, grid: Grid) -> tuple[IntArray, IntArray]:
    """The first and the last of the pieces that the tile of each task is made of, both (tasks,)."""
    own = _grid(port)
    tiles = port.tile.linear(pids) if port.tile.grid else np.zeros(len(pids), np.int64)
    if own == grid:
        return tiles, tiles
    ratio = [whole // part for whole, part in zip(grid, own, strict=True)]
    at = np.unravel_index(tiles, own)
    first = [index * times for index, times in zip(at, ratio, strict=True)]
    last = [index + times - 1 for index, times in zip(first, ratio, strict=True)]
    return _number(first, grid), _number(last, grid)


def pieces_of(port: TensorPort, pids: IntArray, grid: Grid) -> list[int]:
    """All pieces that the tiles of these tasks are made of, in ascending order."""
    first = np.unique(ends_of(port, pids, grid)[0])
    if _grid(port) == grid:
        return [int(piece) for piece in first]
    ratio = [whole // part for whole, part in zip(grid, _grid(port), strict=True)]
    begins, inside = np.unravel_index(first, grid), np.indices(ratio).reshape(len(ratio), -1)
    at = [begin[:, None] + step for begin, step in zip(begins, inside, strict=True)]
    found: list[int] = np.sort(_number(at, grid).ravel()).tolist()
    return found


def _number(at: Sequence[IntArray], grid: Grid) -> IntArray:
    """Row-major."""
    found = np.zeros_like(at[0])
    for index, extent in zip(at, grid, strict=True):
        found = found * extent + index
    return found


def _grid(port: TensorPort) -> Grid:
    return port.tile.grid or (1,) * len(port.tensor.shape)
