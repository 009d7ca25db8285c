"""The walk of a shim channel through DRAM, and how much of it one buffer descriptor can express.

A tile is a nest of loops over its dimensions, innermost the contiguous run; flows that take turns add loops around it;
each temporal loop of the schedule that moves the tile adds one more. Loops that continue each other are one loop. A
descriptor holds a few loops and a repeat count; the host rewrites it for each iteration of what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from allo_dse.common.records import divisors_of, replace
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.mapper.graph_algorithms import Nest, loop_nest
from allo_dse.mapper.violation import Violation

from .movement import WORD_BYTES, AccessPattern

if TYPE_CHECKING:
    from allo_dse.device.npu_model import Descriptor


class _Loop(NamedTuple):
    """`trips` iterations, `step` bytes apart."""

    trips: int
    step: int


def access_pattern(
    port: TensorPort, nest: Nest | None, moves: int, starts: tuple[int, ...], descriptor: Descriptor
) -> AccessPattern:
    """Return the walk through DRAM of a shim channel that carries flows of one family.

    Args:
        nest: the flows' common tile sequence as loops, outermost first; None if it is not a loop nest.
        moves: length of the sequence.
        starts: first byte of each flow's first tile, relative to that of the first flow.
    """
    tile = tile_loops(port.tile_shape, port.tensor.shape, port.tensor.dtype.bits)
    return _pattern(tile, starts, nest, moves, descriptor)


@lru_cache(maxsize=1024)
def tile_loops(tile: tuple[int, ...], shape: tuple[int, ...], bits: int) -> tuple[tuple[int, int], ...]:
    """(count, step in bytes) of the loops over the bytes of a tile, innermost (the contiguous run) first."""
    run, step = bits, bits
    loops: list[tuple[int, int]] = []
    for extent, full in zip(reversed(tile), reversed(shape), strict=True):
        if step == run and not loops:
            run *= extent
        elif extent > 1:
            loops.append((extent, step // 8))
        step *= full
    return ((max(1, run // 8), 1), *loops)


@lru_cache(maxsize=4096)
def _pattern(
    tile: tuple[tuple[int, int], ...],
    starts: tuple[int, ...],
    nest: tuple[tuple[int, int], ...] | None,
    moves: int,
    descriptor: Descriptor,
) -> AccessPattern:
    (run, _), *rows = tile
    words = max(1, run // WORD_BYTES)
    loops = [_Loop(words, WORD_BYTES), *starmap(_Loop, rows)]
    turns = loop_nest(np.array(starts, np.int64))
    if turns is None or nest is None:
        # Without a pattern, the host writes a descriptor (at least one) for each tile.
        one, tiles = _fit(_merged(loops), descriptor), len(starts) * moves
        return replace(one, host_loops=(*one.host_loops, tiles), host_steps=(*one.host_steps, None))
    loops += starmap(_Loop, reversed(turns))
    moving = False
    for count, step in reversed(nest):
        if count > 1:
            moving = moving or step != 0
            loops += [_Loop(count, step)] if moving else []
    return _fit(_merged(loops), descriptor)


def fit_loops(loops: Sequence[tuple[int, int]], descriptor: Descriptor) -> AccessPattern:
    """The walk of a nest of (count, step in bytes), innermost first, as far as one descriptor expresses it."""
    return _fit(_merged([_Loop(count, step) for count, step in loops if count > 1]), descriptor)


def _merged(loops: list[_Loop]) -> list[_Loop]:
    """Loops (innermost first) with each one that continues the one inside it merged into it."""
    result: list[_Loop] = []
    for loop in loops:
        if result and loop.step == result[-1].step * result[-1].trips:
            inner = result.pop()
            loop = _Loop(inner.trips * loop.trips, inner.step)
        result.append(loop)
    return result


def _fit(loops: list[_Loop], descriptor: Descriptor) -> AccessPattern:
    """As many loops as a descriptor holds, from the innermost; the rest is the host's.

    Strides are stored less one, so that only the repeat count can express a loop that stays where it is.
    """
    dims: list[tuple[int, int]] = []
    left = list(loops)
    length = 1
    while left and left[0].step and len(dims) < descriptor.dims:
        # The last loop ends with the descriptor's length and needs no register that counts it.
        outermost = len(left) == 1 or len(dims) == descriptor.dims - 1
        room = descriptor.max_words // length
        split = _split(left[0], room if outermost else min(room, descriptor.max_wrap), descriptor)
        if split is None:
            break
        inner, outer = split
        dims.append((inner.trips, inner.step // WORD_BYTES))
        length *= inner.trips
        left[:1] = [outer] if outer else []
    repeat = _Loop(1, 0)
    if left and (split := _split(left[0], descriptor.max_iterations, descriptor)) is not None:
        repeat = split[0]
        left[:1] = [split[1]] if split[1] else []
    return AccessPattern(
        dims=tuple(dims),
        repeat=repeat.trips,
        repeat_step=repeat.step // WORD_BYTES,
        host_loops=tuple(loop.trips for loop in left),
        host_steps=tuple(loop.step // WORD_BYTES for loop in left),
    )


def _split(loop: _Loop, limit: int, descriptor: Descriptor) -> tuple[_Loop, _Loop | None] | None:
    """A loop of at most `limit` iterations inside another one for the rest; None when not even that fits.

    The longest loop whose successor's step fits a descriptor; without one, the longest.
    """
    if abs(loop.step) // WORD_BYTES > descriptor.max_step_words or loop.step < 0:
        return None
    if loop.trips <= limit:
        return loop, None
    counts = [d for d in divisors_of(loop.trips) if d <= limit]
    count = max(d for d in counts if d == 1 or d * loop.step // WORD_BYTES <= descriptor.max_step_words)
    count = count if count > 1 else max(counts)
    if count == 1:
        return None
    return _Loop(count, loop.step), _Loop(loop.trips // count, loop.step * count)


def is_word_aligned(port: TensorPort) -> bool:
    """Return whether DMA channels can move the port's tiles: whole 32-bit words from word-aligned addresses."""
    loops = tile_loops(port.tile_shape, port.tensor.shape, port.tensor.dtype.bits)
    return loops[0][0] % WORD_BYTES == 0 and all(step % WORD_BYTES == 0 for _, step in loops[1:])


def misaligned_tiles(ports: Iterable[TensorPort]) -> Iterator[Violation]:
    """Yield tiles whose rows are not whole 32-bit words, which no DMA channel can move."""
    wrong = {(p.tensor.name, p.tile_shape): p for p in ports if p.tile_shape and not is_word_aligned(p)}
    for (name, tile), port in wrong.items():
        rest, shape = port.run_bytes % WORD_BYTES or WORD_BYTES, "x".join(map(str, tile))
        detail = f"rows of {port.run_bytes} bytes in tiles {shape} of {port.tensor.dtype}; DMA moves 32-bit words"
        yield Violation("word_alignment", f"tensor {name}", rest, 0, detail)
