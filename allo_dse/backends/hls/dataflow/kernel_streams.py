"""Tensors that pass from kernel to kernel: AXI streams of their tiles, as the first kernel's mover sends them.

The second kernel receives them into a memory, tile by tile, and loads from that what its tasks need, once it has come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from allo_dse.common.errors import AlloDseError
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tensors import Tensor

from .tensor_movers import loop, over_tile, table
from .tensor_plan import PortPlan


class Arrival(Struct, frozen=True):
    """Order and layout of a tensor that arrives through a stream.

    Attributes:
        places: of the first elements of the tiles, as they come. extents: of a tile, `strides` of the tensor, by
            dimension. word: the C++ type of what comes at once, which is so many `bits` and `lanes` elements.
    """

    places: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    word: str
    bits: int
    lanes: int

    @classmethod
    def of(cls, tensor: Tensor, port: PortPlan, moves: Sequence[tuple[tuple[int, ...], int]]) -> Arrival:
        """Build the arrival from the extents and places of tiles, in the order in which they are sent.

        Raises:
            AlloDseError: where these are not all of the tensor once, in tiles of one shape.
        """
        shapes, places = {extents for extents, _ in moves}, tuple(place for _, place in moves)
        if len(shapes) != 1:
            raise AlloDseError(f"HLS C++: {tensor.name} cannot be a stream: its tiles have several shapes")
        arrival = cls(places, shapes.pop(), tensor.strides, port.word, port.lanes * tensor.dtype.bits, port.lanes)
        if not np.array_equal(np.sort(arrival.elements, axis=None), np.arange(math.prod(tensor.shape))):
            raise AlloDseError(f"HLS C++: {tensor.name} cannot be a stream: not every element is written once")
        return arrival

    @property
    def elements(self) -> IntArray:
        """Places of all elements as they come: (tiles, elements of a tile)."""
        return np.array(self.places)[:, None] + _inside(self.extents, self.strides)

    @property
    def words(self) -> int:
        """Size of the memory for the whole tensor, in words."""
        return len(self.places) * math.prod(self.extents) // self.lanes

    @property
    def stream(self) -> str:
        """The C++ type of the stream."""
        return f"hls::stream<ap_axiu<{self.bits}, 0, 0, 0>>"

    def asked(self, moves: Sequence[tuple[tuple[int, ...], int]], strides: Sequence[int]) -> list[int]:
        """For each tile, as they come, the first of some moves before which it must be there, or one that comes later;
        as many as there are moves for what none needs.

        Args:
            moves: extents and places of tiles in a tensor of these strides.
        """
        came, first = np.empty(self.words * self.lanes, np.int64), np.full(len(self.places), len(moves))
        came[self.elements] = np.arange(len(self.places))[:, None]
        for (extents, place), number in {move: number for number, move in reversed([*enumerate(moves)])}.items():
            np.minimum.at(first, came[place + _inside(extents, strides)], number)
        return [int(number) for number in np.minimum.accumulate(first[::-1])[::-1]]

    def receiver(self, function: str, name: str) -> str:
        """The process that writes what comes into the memory, and says so of each tile."""
        parameters = f"{self.stream} &{name}, {self.word} memory[{self.words}], hls::stream<bool> &there"

        def received(address: str, depth: int) -> list[str]:
            return [f"{'  ' * depth}allo::receive({name}, memory[{self.place_of(address)}]);"]

        head = [f"void {function}({parameters}) {{", table("place", self.places), loop(1, "tile", len(self.places))]
        tile = over_tile(2, self.extents, self.strides, self.lanes, received)
        return "\n".join([*head, *tile, "    there.write(true);", "  }", "}"])

    def place_of(self, address: str) -> str:
        """Return the position of a word in the memory."""
        return f"({address}) / {self.lanes}" if self.lanes > 1 else address


class KernelStreams(Struct, frozen=True):
    """The tensors of a kernel that are AXI streams, by name: those it sends, and how those come that it receives.

    Attributes:
        memory: what holds those, "uram" or "bram".
    """

    sent: frozenset[str] = frozenset()
    received: Mapping[str, Arrival] = field(default_factory=dict)
    memory: str = "bram"


def _inside(extents: Sequence[int], strides: Sequence[int]) -> IntArray:
    """Places of a tile's elements, row-major, from its first."""
    inside = np.zeros((), np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        inside = inside[..., None] + np.arange(extent) * stride
    return inside.ravel()
