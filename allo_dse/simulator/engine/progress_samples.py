"""Progress of each node, sampled now and then: an overview of a whole run, however long it is."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..codegen.run_time.record_fields import Node
from ..network.arena import Arena
from ..network.network import IntArray

NOTED = (Node.CLOCK, Node.STALL_GET, Node.STALL_PUT, Node.STALL_REQUEST)
MOST_WORDS = 1 << 23
"""Words that samples may take in all."""
FIRST_PIECE = 256
"""Turns between two samples at first, and more for each node."""


class Samples(Struct, frozen=True):
    """Progress of each node at some points of a run, from its beginning to its end.

    Attributes:
        clock: per sample and node. stalls: per sample, node and kind (waits for tokens, room, resources) the cycles up
            to that clock.
    """

    clock: IntArray
    stalls: IntArray

    def shares(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shares of time that nodes work and wait: (nodes, intervals, 4), for work and each kind of waiting.

        Between two samples a node is taken to do everything evenly; the rest to 1 is after its end.

        Args:
            edges: of the intervals, ascending clocks.
        """
        count = self.clock.shape[1]
        result = np.empty((count, len(edges) - 1, 1 + self.stalls.shape[2]))
        for node in range(count):
            clock = self.clock[:, node]
            waited = [np.interp(edges, clock, self.stalls[:, node, kind]) for kind in range(self.stalls.shape[2])]
            done = np.minimum(edges, clock[-1])
            result[node] = np.diff(np.stack([done - np.sum(waited, axis=0), *waited], axis=1), axis=0)
        return result / np.diff(edges)[:, None]


class Sampler:
    """Takes samples of a run, about evenly over its time.

    Args:
        count: how many to keep at least, as long as memory allows.
    """

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena = arena
        nodes = max(1, len(arena.nodes))
        self._count = max(2, min(count, MOST_WORDS // (2 * len(NOTED) * nodes)))
        self._piece = FIRST_PIECE + nodes
        self._taken: list[IntArray] = []

    def take(self) -> int:
        """Take a sample; returns the turns until the next."""
        self._taken.append(self._arena.nodes[:, NOTED])
        if len(self._taken) > 2 * self._count:
            self._thin()
            self._piece *= 2
        return self._piece

    def _thin(self) -> None:
        """Keep only the last of the samples from the same small part of the time up to now."""
        # Extrapolation moves clocks by leaps: what is evenly spread is the time that nodes have come to, not the turns.
        progress = np.array([float(sample[:, 0].mean()) for sample in self._taken])
        place = (progress * (self._count / max(progress[-1], 1.0))).astype(np.int64)
        last = np.append(place[1:] != place[:-1], True)
        last[0] = True
        self._taken = [sample for sample, keep in zip(self._taken, last.tolist(), strict=True) if keep]

    def samples(self) -> Samples:
        """Everything noted; to be called once, after the run."""
        self.take()
        taken = np.stack(self._taken)
        return Samples(taken[:, :, 0], taken[:, :, 1:])
