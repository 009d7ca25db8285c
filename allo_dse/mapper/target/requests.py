"""How many requests the host has to queue at once, as Allo's runtime sequence does.

The tiles of one iteration of a node's outermost bundle are requested together. Tiles that follow each other in the
tensor's grid become one request; a tile that is needed again is requested again. What is left has to fit the queue of
the transfer's channel and the buffer descriptors of the shim tile, or Allo has nothing to wait for and gives up.

Source: the runtime sequence in `CodeGenerator.aie_codegen`, `allo.backend.aie.mlir_codegen`, commit a098603.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from .transfers import TransferRun

REQUESTS_PER_CHANNEL = 4
"""Requests that Allo queues on one channel before it waits."""
SHIM_DESCRIPTORS = 16
"""`allo.backend.aie.utils.Config.DMA_MAX_BDS`."""
MOST_PER_DIMENSION = (64, None, 1024, 1024)
"""`Config.SHIM_DMA_HARDWARE_MAX_SIZES`: what one request can cover along each of its dimensions."""

Place = tuple[int, ...]
Request = tuple[Place, Place]
"""Where it begins, and its size, in tiles (dimensions 0 and 1) and elements."""


class Queue(Struct, frozen=True):
    """The longest queue of a channel or a shim tile.

    Attributes:
        where: the tensor, or the shim tile's number.
    """

    where: str
    needed: int
    limit: int


def full_queues(runs: Sequence[TransferRun]) -> Iterator[Queue]:
    """The queues that are longer than what there is room for."""
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
    """How many groups are requested when Allo wants to wait for a result and none is on its way; None if never.

    It queues as many groups as fit, waits for the results of the first of them, and goes on.
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
    """Requests of the group that needs most; the others are the first one moved, where the first place moves alone."""
    tiles = run.sample.tiles
    alike = ((tiles - tiles[:, :1]) == (tiles[0] - tiles[0, :1])).all()
    groups = tiles[:1] if alike else tiles
    size = tuple(a * b for a, b in zip(run.size, _tile_size(run), strict=True))
    return max(request_count(map(tuple, group.tolist()), size) for group in groups)


def _tile_size(run: TransferRun) -> Place:
    """Elements of a tile in 4 dimensions, those that count tiles being 1."""
    shape = run.sample.port.tile_shape
    return (1, 1, 1, *shape) if len(shape) == 1 else (1, 1, *shape)


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
            step = _next_along(last, place)
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


def _next_along(first: Place, second: Place) -> int | None:
    """The dimension along which a place is the next one; None when it is not."""
    steps = [(dimension, b - a) for dimension, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    return steps[0][0] if len(steps) == 1 and steps[0][1] == 1 else None
