"""Tensors in host memory, and how the tasks of a class use them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from msgspec import Struct

from allo_dse.common.aliases import Array
from allo_dse.lang.types import DType

from .index_maps import IndexMap, IntArray

Grid = tuple[int, ...]
"""How many tiles, or pieces, a tensor has along each of its dimensions."""


class Tensor(Struct, frozen=True):
    """An argument of the region: a tensor in host memory (DRAM), or a scalar when `shape` is empty."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next along each dimension: tensors lie row by row."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


class TensorPort(Struct, frozen=True):
    """A tensor argument as one task class uses it.

    Attributes:
        arg: position in the kernel's `args`.
        layout: per tensor dimension the mesh axis it is sharded on, or None where it is replicated.
        tile_shape: the local shape a task sees.
        tile: which tile of the tensor a task holds (grid = number of tiles per dimension).
        reads, writes: what the class does with it. A port that is neither is not used by the class.
    """

    arg: int
    tensor: Tensor
    layout: tuple[int | None, ...]
    tile_shape: tuple[int, ...]
    tile: IndexMap
    reads: bool
    writes: bool

    @property
    def tile_bytes(self) -> int:
        return max(1, math.prod(self.tile_shape) * self.tensor.dtype.bits // 8)

    @property
    def run_bytes(self) -> int:
        """Bytes that lie contiguously in DRAM within one tile (row-major tensors)."""
        run = 1
        for tile, full in zip(reversed(self.tile_shape), reversed(self.tensor.shape), strict=True):
            run *= tile
            if tile != full:
                break
        return max(1, run * self.tensor.dtype.bits // 8)

    @property
    def directions(self) -> tuple[Literal["in", "out"], ...]:
        """The directions in which it moves tiles."""
        ways: tuple[tuple[Literal["in", "out"], bool], ...] = (("in", self.reads), ("out", self.writes))
        return tuple(way for way, moves in ways if moves)

    def offsets(self, pids: IntArray) -> IntArray:
        """Elements from the tensor's first to the first of the tile of each task: (n,) for pids (n, mesh rank)."""
        result = np.zeros(len(pids), np.int64)
        if self.tile.grid:
            coordinates = np.unravel_index(self.tile.linear(pids), self.tile.grid)
            for coordinate, extent, stride in zip(coordinates, self.tile_shape, self.tensor.strides, strict=True):
                result += coordinate * extent * stride
        return result


@dataclass(frozen=True)
class SharedTensor:
    """Memory that several tasks use, but no argument of the program: local arrays that a task calls regions with.

    Attributes:
        initial: its contents before the first run, of the tensor's shape.
    """

    tensor: Tensor
    initial: Array = field(compare=False)


class LayoutStep(Struct, frozen=True):
    """Elements in another order: "transpose" with the permutation of the dimensions, or "view" with the new shape."""

    kind: Literal["transpose", "view"]
    argument: tuple[int, ...]


class LayoutUse(Struct, frozen=True):
    """A tensor argument that a body reads in another layout only, or writes in another than it computes it in.

    Attributes:
        arg: position among the kernel's arguments.
        direction: "in" for what it reads.
        shape: of what the steps begin with: the argument, or the array that is written to it.
        steps: what the body does, in order, before it uses the argument or to write it.
        sites: positions in `TaskClass.work` of the operations that do so.
    """

    arg: int
    direction: Literal["in", "out"]
    shape: tuple[int, ...]
    steps: tuple[LayoutStep, ...]
    sites: tuple[int, ...]


def piece_grids(ports: Iterable[TensorPort]) -> dict[str, Grid]:
    """By tensor, the fewest pieces along each dimension such that every tile of every port is made of whole pieces: the
    tiles themselves where all ports cut it alike."""
    found: dict[str, Grid] = {}
    for port in ports:
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


def pieces_of(port: TensorPort, pids: IntArray, grid: Grid) -> IntArray:
    """All pieces that the tiles of these tasks are made of, in ascending order."""
    first = np.unique(ends_of(port, pids, grid)[0])
    if _grid(port) == grid:
        return first
    ratio = [whole // part for whole, part in zip(grid, _grid(port), strict=True)]
    begins, inside = np.unravel_index(first, grid), np.indices(ratio).reshape(len(ratio), -1)
    at = [begin[:, None] + step for begin, step in zip(begins, inside, strict=True)]
    return np.sort(_number(at, grid).ravel())


def _number(at: Sequence[IntArray], grid: Grid) -> IntArray:
    """Row-major."""
    found = np.zeros_like(at[0])
    for index, extent in zip(at, grid, strict=True):
        found = found * extent + index
    return found


def _grid(port: TensorPort) -> Grid:
    return port.tile.grid or (1,) * len(port.tensor.shape)
