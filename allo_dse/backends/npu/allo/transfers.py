"""Allo's transfers of tiles between DRAM and cores: interfaces that share a transfer, and the tiles that carry it.

Interfaces that need the same tiles at the same times share one stream (multicast). Interfaces with adjacent tiles in
the tensor's grid share one transfer between DRAM and a memory tile, as far as the tile has ports. The only transfer of
a tensor is first spread over the columns if possible: Allo's examples request this with
ENABLE_AGGRESSIVE_PORT_UTILIZATION_PATCH=1, and so do exported designs. A transfer that finds no ports is split until
its parts do. Allo gives up on a transfer that cannot be split further ("Fail to partition"), or that is spread into
parts of some rows and a piece ("Invalid slice size").

Source: `CodeGenerator.map_data_transfer` in `allo.backend.aie.mlir_codegen`, `coalesce_memory_access` in `allo.memory`,
commit a098603. An independent implementation; `docs/allo_target.md` describes how the verdicts were compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from allo_dse.common.records import Frozen

from .interfaces import Interface, tile_counts

Place = tuple[int, ...]
Stream = tuple[Interface, ...]
"""Interfaces that one stream serves."""

MEMORY_TILE_PORTS = 6
SHIM_PORTS = 2
"""Channels per direction that Allo counts with: `allo.backend.aie.utils.Config`."""


Ports = tuple[int, int]
"""Ports of a tile, for sending and for receiving."""
Size = tuple[int, ...]
Adjacent = tuple[tuple[Stream, ...], Size]
"""Streams whose tiles lie next to each other, and how many tiles they make up in each of the 4 dimensions."""


class NoTransfer(Exception):
    """A transfer that Allo cannot make.

    Attributes:
        stream: the first that it serves.
        parts: into how many parts it would be spread; 0 where no memory tile or no shim tile has ports for the stream.
        shortage: the channels that all tensors together lack, if they do.
    """

    def __init__(self, stream: Stream, parts: int = 0) -> None:
        self.stream, self.parts = stream, parts
        self.shortage: Shortage | None = None


class Shortage(Frozen):
    """Channels of a kind that are fewer than the tensors need.

    Attributes:
        channels: in words.
        by_tensor: the least number that each tensor needs.
    """

    channels: str
    by_tensor: Mapping[str, int]
    limit: int

    @property
    def needed(self) -> int:
        return sum(self.by_tensor.values())

    def __str__(self) -> str:
        names = ", ".join(f"{name} {count:,}" for name, count in self.by_tensor.items())
        return f"{self.needed:,} {self.channels} are needed ({names}), and there are {self.limit:,}"


class TransferRun(Frozen, eq=False):
    """The transfers of one shim channel.

    Attributes:
        shim, memory_tile: numbers of the tiles.
        size: tiles per request, in 4 dimensions.
    """

    shim: int
    memory_tile: int
    streams: tuple[Stream, ...]
    size: Size

    @property
    def sample(self) -> Interface:
        """The interface whose tiles give the begin of each request."""
        return self.streams[0][0]


_CHANNELS = {
    (True, False): "channels from memory tiles to cores",
    (True, True): "channels from DRAM",
    (False, False): "channels from cores to memory tiles",
    (False, True): "channels to DRAM",
}


@dataclass(eq=False)
class TransferPlan:
    """Transfers on the memory and shim tiles of an array.

    Attributes:
        memory_tiles, shims: how many the array has.
    """

    memory_tiles: int
    shims: int
    runs: list[TransferRun] = field(default_factory=list)
    _memory: list[Ports] = field(default_factory=list)
    _shim: list[Ports] = field(default_factory=list)
    _turn: int = 0

    def add_tensors(self, tensors: Iterable[Sequence[Interface]]) -> None:
        """Plan all transfers, tensor by tensor.

        Raises:
            NoTransfer: where Allo cannot partition one.
        """
        wanted = [list(adjacent_streams(multicast(own))) for own in tensors]
        try:
            for transfers in spread(wanted, self.shims):
                self._turn = 0
                for streams, size in transfers:
                    self._transfer(streams, size)
        except NoTransfer as refusal:
            refusal.shortage = self._shortage(wanted)
            raise

    def _shortage(self, wanted: Sequence[Sequence[Adjacent]]) -> Shortage | None:
        """Return the channels that are most in excess, when each transfer is cut as little as memory tiles allow."""
        needs: dict[tuple[bool, bool], Counter[str]] = {}  # by whether they read, and end at DRAM
        for streams, _ in (transfer for transfers in wanted for transfer in transfers):
            name, is_input = streams[0][0].port.tensor.name, streams[0][0].is_input
            ends = len(streams) if is_input else sum(map(len, streams))
            needs.setdefault((is_input, False), Counter())[name] += ends
            needs.setdefault((is_input, True), Counter())[name] += -(-ends // MEMORY_TILE_PORTS)
        limits = {False: MEMORY_TILE_PORTS * self.memory_tiles, True: SHIM_PORTS * self.shims}
        found = [Shortage(_CHANNELS[way], own, limits[way[1]]) for way, own in needs.items()]
        return max((s for s in found if s.needed > s.limit), key=lambda s: s.needed / s.limit, default=None)

    def _transfer(self, streams: tuple[Stream, ...], size: Size) -> None:
        """Assign a transfer, in parts of equal width along the first dimension it extends in."""
        if min(size) < 1:  # streams that follow each other only by number, not in the tensor's grid
            raise NoTransfer(streams[0])
        along: int | None = None
        while streams:
            if self._assign(streams, size):
                return
            part = size
            while True:
                dimension = next((d for d in range(3) if part[d] > 1), None)
                if dimension is None:
                    raise NoTransfer(streams[0])
                smaller = (*part[:dimension], part[dimension] - 1, *part[dimension + 1 :])
                along = dimension if along is None else along
                if along != dimension:  # cut away all but one row: go on inside the row
                    self._transfer(streams[: math.prod(part)], part)
                    break
                part = smaller
                if self._assign(streams[: math.prod(part)], part):
                    break
            streams = streams[math.prod(part) :]
            size = tuple(a - b if a != b else a for a, b in zip(size, part, strict=True))

    def _assign(self, streams: tuple[Stream, ...], size: Size) -> bool:
        """Take ports on a memory tile and a shim tile; False when there are none."""
        is_input = streams[0][0].is_input
        through_memory = (len(streams), 1) if is_input else (1, sum(map(len, streams)))
        through_shim = (1, 0) if is_input else (0, 1)
        memory = _tile(self._memory, self.memory_tiles, through_memory, MEMORY_TILE_PORTS, self._turn)
        if memory is None:
            return False
        self._turn = memory + 1
        shim = _tile(self._shim, self.shims, through_shim, SHIM_PORTS)
        if shim is None:
            return False
        self._memory[memory] = _added(self._memory[memory], through_memory)
        self._shim[shim] = _added(self._shim[shim], through_shim)
        self.runs.append(TransferRun(shim, memory, streams, size))
        return True

    @property
    def memory_ports(self) -> list[Ports]:
        """Ports taken on each memory tile, for sending and for receiving."""
        return self._memory + [(0, 0)] * (self.memory_tiles - len(self._memory))


def _tile(taken: list[Ports], most: int, needed: Ports, limit: int, turn: int = 0) -> int | None:
    """Return an unused tile while there are any, then used ones from `turn` on; None if none has enough ports."""
    if len(taken) < most and max(needed) <= limit:
        taken.append((0, 0))
        return len(taken) - 1
    order = ((turn + offset) % len(taken) for offset in range(len(taken)))
    return next((number for number in order if max(_added(taken[number], needed)) <= limit), None)


def _added(taken: Ports, needed: Ports) -> Ports:
    return taken[0] + needed[0], taken[1] + needed[1]


def spread(tensors: Sequence[list[Adjacent]], shims: int) -> Iterator[list[Adjacent]]:
    """Split the only transfer of a tensor into equal parts, up to the number of free channels or shim tiles.

    Raises:
        NoTransfer: where a part would be some rows and a piece of the next.
    """
    count = {True: 0, False: 0}
    for transfers in tensors:
        count[transfers[0][0][0][0].is_input] += len(transfers)
    for transfers in tensors:
        streams, size = transfers[0]
        is_input = streams[0][0].is_input
        parts = shims
        while parts > 1 and (len(streams) % parts or parts - 1 + count[is_input] > SHIM_PORTS * shims):
            parts //= 2
        if len(transfers) > 1 or parts <= 1:
            yield transfers
            continue
        count[is_input] += parts - 1
        width = len(streams) // parts
        part = _last_places(size, width)
        if math.prod(part) != width:
            raise NoTransfer(streams[0], parts)
        yield [(streams[first : first + width], part) for first in range(0, len(streams), width)]


def _last_places(size: Size, width: int) -> Size:
    """Return the size of a part of `width` tiles: whole rows if they fit, else a part of one."""
    part = [1, 1, 1, 1]
    for dimension in (3, 2, 1, 0):
        part[dimension] = min(width, size[dimension])
        if width < size[dimension]:
            break
        width //= size[dimension]
    return tuple(part)


def multicast(interfaces: Sequence[Interface]) -> dict[Place, list[Stream]]:
    """The streams that serve interfaces of one tensor, by the place of their first tile."""
    found: dict[Place, list[list[Interface]]] = {}
    for one in interfaces:
        streams = found.setdefault(one.first, [])
        same = next((s for s in streams if s[0].same_transfer(one)), None)
        if same is None:
            streams.append(same := [])
        same.append(one)
    return {place: [tuple(stream) for stream in streams] for place, streams in found.items()}


def adjacent_streams(at: dict[Place, list[Stream]]) -> Iterator[Adjacent]:
    """Yield streams with adjacent tiles, together with the size of their union."""
    for places in adjacent_places(list(at)):
        rows = [list(at[place]) for place in places]
        for number in range(len(rows)):
            while rows[number]:
                yield _run(rows, number)


def _run(rows: list[list[Stream]], number: int) -> Adjacent:
    """Take the first remaining stream at a place, and its continuations at the following places."""
    streams = [rows[number].pop(0)]
    size: Place = (1, 1, 1, 1)
    along: int | None = None
    for row in rows[number + 1 :]:
        for position, other in enumerate(row):
            step = _step(streams[-1], other, along)
            if step is not None:
                along, difference = step
                size = tuple(a + b for a, b in zip(size, difference, strict=True))
                streams.append(row.pop(position))
                break
        else:
            break
    return tuple(streams), size


def _step(one: Stream, other: Stream, along: int | None) -> tuple[int | None, Size] | None:
    """Return the dimension and distance at which a stream always continues another; None if it does not."""
    first, second = one[0], other[0]
    if first.tiles.shape != second.tiles.shape or {i.node for i in one} & {i.node for i in other}:
        return None
    difference = (second.tiles - first.tiles).reshape(-1, 4)
    if (difference != difference[0]).any():
        return None
    counts = tile_counts(first.port)
    strides = [math.prod(counts[dimension + 1 :]) for dimension in range(4)]
    distance = int(np.dot(difference[0], strides))
    dimension = None
    for candidate, stride in enumerate(strides):
        if distance >= stride:
            if distance % stride:
                return None
            distance //= stride
            if distance == 1:
                dimension = candidate
                break
    if along is not None and along != dimension:
        return None
    return dimension, tuple(difference[0].tolist())


def adjacent_places(places: Sequence[Place]) -> list[list[Place]]:
    """Places in runs: first along the last dimension, then runs that lie one above the other, and so on."""
    runs = {place: [place] for place in places}
    for dimension in (3, 2, 1, 0):
        taken: set[Place] = set()
        base: Place | None = None
        end: Place = ()
        for place in sorted(runs):
            if place in taken:
                continue
            following = (*end[:dimension], end[dimension] + 1, *end[dimension + 1 :]) if base is not None else ()
            if base is not None and following in runs:
                taken.add(following)
                runs[base] += runs[following]
                end = following
            else:
                base = end = place
        for place in taken:
            del runs[place]
    return list(runs.values())


# Requests that the host queues at once, as in Allo's runtime sequence.
#
# The tiles of one iteration of a node's outermost bundle are requested together. Consecutive tiles in the tensor's grid
# become one request; a tile that is needed again is requested again. These requests must fit the queue of the
# transfer's channel and the buffer descriptors of the shim tile, or Allo has nothing to wait for and gives up.
#
# Source: the runtime sequence in `CodeGenerator.aie_codegen`, `allo.backend.aie.mlir_codegen`, commit a098603.


REQUESTS_PER_CHANNEL = 4
"""Requests that Allo queues on one channel before it waits."""
SHIM_DESCRIPTORS = 16
"""`allo.backend.aie.utils.Config.DMA_MAX_BDS`."""
MOST_PER_DIMENSION = (64, None, 1024, 1024)
"""`Config.SHIM_DMA_HARDWARE_MAX_SIZES`: what one request can cover along each of its dimensions."""

Request = tuple[Place, Place]
"""First place and size of a request, in tiles (dimensions 0 and 1) and elements."""


class Queue(Frozen):
    """The longest queue of a channel or a shim tile.

    Attributes:
        where: the tensor, or the shim tile's number.
    """

    where: str
    needed: int
    limit: int


def full_queues(runs: Sequence[TransferRun]) -> Iterator[Queue]:
    """Yield the queues that exceed their room."""
    on_shim: dict[int, int] = {}
    for run in runs:
        needed = longest_group(run)
        on_shim[run.shim] = on_shim.get(run.shim, 0) + needed
        if needed > REQUESTS_PER_CHANNEL:
            yield Queue(f"tensor {run.sample.port.tensor.name}", needed, REQUESTS_PER_CHANNEL)
    for shim, needed in on_shim.items():
        if needed > SHIM_DESCRIPTORS:
            yield Queue(f"shim tile {shim}", needed, SHIM_DESCRIPTORS)


def unanswered(runs: Sequence[TransferRun]) -> int | None:
    """Return the number of groups requested when Allo waits for a result that is not on its way; None if it never does.

    Allo queues as many groups as fit, waits for the results of the first of them, and continues.
    """
    groups = [len(run.sample.tiles) for run in runs]
    results = max((n for n, run in zip(groups, runs, strict=True) if not run.sample.is_input), default=0)
    if results == max(groups, default=0):
        return None
    needs = [(run.shim, longest_group(run), n) for n, run in zip(groups, runs, strict=True)]
    free = dict.fromkeys((shim for shim, _, _ in needs), SHIM_DESCRIPTORS)
    waiting: list[int] = []
    begun = answered = 0
    while begun < max(groups):
        room = [REQUESTS_PER_CHANNEL] * len(needs)
        while begun < max(groups):
            used = dict.fromkeys(free, 0)
            for shim, needed, n in needs:
                used[shim] += needed if begun < n else 0
            tight = any(begun < n and needed > left for (_, needed, n), left in zip(needs, room, strict=True))
            if tight or any(used[shim] > free[shim] for shim in free):
                break
            room = [left - needed for (_, needed, _), left in zip(needs, room, strict=True)]
            free = {shim: left - used[shim] for shim, left in free.items()}
            waiting += [begun] if begun < results else []
            begun += 1
        if not waiting:
            return begun
        done = waiting.pop(0)
        for shim, needed, n in needs:
            free[shim] += needed * (min(done + 1, n) - min(answered, n))
        answered = done + 1
    return None


def longest_group(run: TransferRun) -> int:
    """Return the most requests of a group; if groups only differ in their place, the first one is enough."""
    tiles = run.sample.tiles
    alike = ((tiles - tiles[:, :1]) == (tiles[0] - tiles[0, :1])).all()
    groups = tiles[:1] if alike else tiles
    tile = run.sample.port.tile_shape
    size = tuple(a * b for a, b in zip(run.size, (1,) * (4 - len(tile)) + tile, strict=True))
    return max(request_count(map(tuple, group.tolist()), size) for group in groups)


def request_count(places: Iterable[Place], size: Place) -> int:
    """Requests for tiles in the order of their use; neighbours are joined as long as any are left to join."""
    if size[0] > 1 and size[1] == 1:  # as Allo orders the dimensions of a column of tiles
        places = ((b, a, *rest) for a, b, *rest in places)
        size = (size[1], size[0], *size[2:])
    requests: list[Request] = [(place, size) for place in places]
    while True:
        joined = list(_joined(requests))
        if len(joined) == len(requests):
            return len(joined)
        requests = joined


def _joined(requests: Sequence[Request]) -> Iterator[Request]:
    left = 0
    while left < len(requests):
        start, size = requests[left]
        count, along, last = 1, None, start
        for place, _ in requests[left + 1 :]:
            moved = [dimension for dimension, (a, b) in enumerate(zip(last, place, strict=True)) if a != b]
            step = moved[0] if len(moved) == 1 and place[moved[0]] == last[moved[0]] + 1 else None
            if step is None or (along is not None and step != along):
                break
            most = MOST_PER_DIMENSION[step]
            if most is not None and (count + 1) * size[step] > most:
                break
            count, along, last = count + 1, step, place
        if along is not None:
            size = (*size[:along], count * size[along], *size[along + 1 :])
        yield start, size
        left += count
