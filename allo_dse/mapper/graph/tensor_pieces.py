"""The pieces of tensors that the tasks of a program use."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tensors import Grid, piece_grids, pieces_of

from .class_tasks import tasks_by_class


class TensorPieces(Struct, frozen=True):
    """The pieces of each tensor that tasks read, and those that they write, in ascending order.

    Attributes:
        grids: see `piece_grids`.
        words: elements of each piece.
    """

    reads: Mapping[str, IntArray]
    writes: Mapping[str, IntArray]
    grids: Mapping[str, Grid]
    words: Mapping[str, int]

    @classmethod
    def of(cls, program: CompiledProgram) -> TensorPieces:
        """Those of a program."""
        used = {does: defaultdict[str, list[IntArray]](list) for does in ("reads", "writes")}
        grids, words = piece_grids(program.tensor_ports), dict[str, int]()
        for own, _, pids in tasks_by_class(program):
            for port in own.tensor_ports:
                name = port.tensor.name
                pieces = pieces_of(port, pids, grids[name])
                for does, found in used.items():
                    found[name].append(pieces if getattr(port, does) else pieces[:0])
                words[name] = math.prod(port.tensor.shape) // math.prod(grids[name])
        reads, writes = ({n: np.unique(np.concatenate(p)) for n, p in found.items()} for found in used.values())
        return cls(reads, writes, grids, words)
