"""Ends of streams at the nodes of groups, and where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allo_dse.program.index_maps import IntArray


class Ends(NamedTuple):
    """Ends of one direction in a group of nodes: streams, ascending and each once, and the rows of their nodes."""

    stream: IntArray
    row: IntArray

    @staticmethod
    def of(streams: IntArray, rows: IntArray) -> Ends:
        """The first end of each stream."""
        stream, first = np.unique(streams, return_index=True)
        return Ends(stream, rows[first])


class Met(NamedTuple):
    """Streams that have both ends at nodes, ascending, with the numbers of these nodes."""

    stream: IntArray
    source: IntArray
    target: IntArray


def meet(first_nodes: Sequence[int], puts: Sequence[Ends], gets: Sequence[Ends]) -> Met:
    """The streams of which both ends are at nodes of some groups, at the first of them that has an end."""
    put, source = _joined(first_nodes, puts)
    get, target = _joined(first_nodes, gets)
    stream, at_put, at_get = np.intersect1d(put, get, assume_unique=True, return_indices=True)
    return Met(stream, source[at_put], target[at_get])


def _joined(first_nodes: Sequence[int], ends: Sequence[Ends]) -> tuple[IntArray, IntArray]:
    """The streams, each once, and the numbers of their nodes."""
    nodes = [first + own.row for first, own in zip(first_nodes, ends, strict=True)]
    return Ends.of(np.concatenate([own.stream for own in ends]), np.concatenate(nodes))
