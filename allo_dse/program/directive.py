"""Customizations of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from allo_dse.common.hashed_once import hashed_once

ADDERS = "adders"
"""The kind of directives about the operators of floating-point sums; they are about the whole program."""
DATAFLOW, STREAM = "dataflow", "stream"
"""The kinds of directives about nests that run at once: of which function (or loop), and which arrays are FIFOs."""


@hashed_once
@dataclass(frozen=True)
class Directive:
    """A customization of a schedule: attributes that cost models and code generators read; results do not change.

    Attributes:
        kind: "partition", "pipeline", "unroll", "dataflow" or "stream"; for FPGAs also "place", "pack" and "adders".
        scope: the region or kernel whose array or loop is meant.
        name: the array or loop.
        options: for "partition" `dim` (1-based; 0: all), `factor` (0: as many banks as elements), `partition_type`
            ("complete", "block" or "cyclic"); for "pipeline" `initiation_interval`, `rewind`; for "unroll" `factor` (0:
            completely); for "stream" `depth` (-1: the default), `to`; for "adders" `impl`, "fabric" for those without
            DSPs.
    """

    kind: str
    scope: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, self.scope, self.name, *self.options.values()))

    def banks(self, shape: Sequence[int]) -> dict[int, int]:
        """Into how many banks a "partition" splits an array of this shape: per axis that it is about."""
        dim, factor = self.options.get("dim", 0), self.options.get("factor", 0)
        complete = not factor or self.options.get("partition_type", "complete") == "complete"
        axes = range(len(shape)) if dim == 0 else (dim - 1,)
        return {axis: shape[axis] if complete else factor for axis in axes if axis < len(shape)}

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.kind}({self.scope}:{self.name}, {options})"


def stream_depth(directive: Directive) -> int:
    """How many elements an array that is passed on as a stream holds; 2 where the program does not say."""
    return max(2, int(directive.options.get("depth", 0)))
