"""Regular loops and their streams laid out for `sweeps`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..trace.data import PUT, IntArray, TraceData, TraceError, TraceLoop
from .sweeps import Fifos, Loops

RING_ROOM = 1 << 26
"""Token times kept, at most."""
UNBOUNDED_RING = 1 << 16
"""Tokens waiting in a stream that can hold all it ever carries, at most."""


def lay_out_loops(data: TraceData) -> Loops:
    """The loops of a trace, process after process."""
    order = sorted(range(len(data.loops)), key=lambda i: data.loops[i].process)
    loops = [data.loops[i] for i in order]
    rows = [_list(loop, len(data.streams)) for loop in loops]
    late = [max((q for _, _, q in row), default=0) for row in rows]
    flat = np.array([entry for row in rows for entry in row], np.int64).reshape(-1, 3)
    counts = np.bincount([loop.process for loop in loops], minlength=len(data.processes)) if loops else None

    def column(values: list[int]) -> IntArray:
        return np.array(values, np.int64)

    zeros = np.zeros(len(data.processes), np.int64)
    return Loops(
        first=np.concatenate([[0], np.cumsum(zeros if counts is None else counts)]).astype(np.int64),
        base=data.bases[column(order)],
        ii=column([loop.ii for loop in loops]),
        trip=column([loop.trip for loop in loops]),
        windows=column([loop.trip + q if loop.ops and loop.trip else 0 for loop, q in zip(loops, late, strict=True)]),
        prologue=column(late),
        op_first=np.concatenate([[0], np.cumsum(column([len(row) for row in rows]))]).astype(np.int64),
        port=flat[:, 0].copy(),
        place=flat[:, 1].copy(),
        late=flat[:, 2].copy(),
    )


def _list(loop: TraceLoop, streams: int) -> list[tuple[int, int, int]]:
    """(port, r, q) of a loop's operations in the order of a window; where due together, earlier iterations first."""
    ops = enumerate(loop.ops or ())
    keyed = [(op.stage % loop.ii, -(op.stage // loop.ii), j, op) for j, op in ops]
    keyed.sort(key=lambda entry: entry[:3])
    return [(op.stream + (streams if op.kind == PUT else 0), r, -q) for r, q, _, op in keyed]


def lay_out_fifos(loops: Loops, depth: IntArray, latency: IntArray, bounded: NDArray[np.bool_]) -> Fifos:
    """The streams with room for the times of their tokens.

    Args:
        bounded: per stream, whether it can get full.

    Raises:
        TraceError: if they take too much memory.
    """
    streams = len(depth)
    per_window = np.zeros(2 * streams, np.int64)
    for i in range(len(loops.base)):
        ports = loops.port[loops.op_first[i] : loops.op_first[i + 1]]
        per_window = np.maximum(per_window, np.bincount(ports, minlength=2 * streams))
    soft = 2 * (per_window[:streams] + per_window[streams:])
    ring, mask = _rings(np.where(bounded, depth, UNBOUNDED_RING + 1024 * soft))
    if ring[-1] > RING_ROOM:
        raise TraceError(
            f"streams that hold {int(depth[bounded].sum()):,} tokens together take too much memory",
            hint="a stream that is to hold all its tokens costs nothing: give it that depth",
        )
    return Fifos(depth, latency, soft, ring, mask)


def _rings(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Where each ring starts (and all end), and masks of the next power of two."""
    capacity = np.array([1 << int(size - 1).bit_length() if size > 1 else 1 for size in sizes.tolist()], np.int64)
    start: NDArray[np.int64] = np.concatenate([[0], np.cumsum(capacity)]).astype(np.int64)
    return start, capacity - 1
