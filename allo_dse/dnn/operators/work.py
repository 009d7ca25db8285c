"""What an operator of a network is, as a dataflow program with parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from allo.ir.types import bfloat16, float32
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.space.params import Parameter, choices, divisors

Array = NDArray[np.generic]
LEAST_TILE, MOST_TILE = 16, 256  # of a side of a matrix: below, calls of kernels dominate; above, no core keeps it


@dataclass(frozen=True)
class Work:
    """A program, what may vary in it, and what it computes.

    Attributes:
        kind: name of the operator.
        program: a function of `params` that returns a region. What it reads comes first among its tensors.
        params: sizes and element types; what may vary is a `Parameter`. Of element types, each is a work of its own.
        reference: from the arrays that the program reads (narrow floats as float32) to those that it writes.
        verify_with: from parameters to those of a smaller instance with the same tasks.
    """

    kind: str
    program: Callable[..., object]
    params: Mapping[str, object]
    reference: Callable[..., object] | None = None
    verify_with: Callable[[Mapping[str, int]], Mapping[str, object]] | None = field(default=None, compare=False)

    @property
    def smallest(self) -> dict[str, object]:
        """The parameters, with the first value of each that may vary."""
        return {name: one.values[0] if isinstance(one, Parameter) else one for name, one in self.params.items()}

    @property
    def variants(self) -> tuple[Work, ...]:
        """The work in each of the element types that its parameters allow."""
        types = {
            name: one.values
            for name, one in self.params.items()
            if isinstance(one, Parameter) and not any(isinstance(value, int | float | str) for value in one.values)
        }
        chosen = (dict(zip(types, values, strict=True)) for values in product(*types.values()))
        return tuple(replace(self, params={**self.params, **own}) for own in chosen) if types else (self,)


def tile_counts(size: int, least: int = LEAST_TILE, most: int = MOST_TILE) -> Parameter:
    """How many tiles of `least` to `most` elements a side of `size` may have; a smaller one has one.

    Raises:
        StudyError: for a side that is no whole number of such tiles.
    """
    try:
        return divisors(size, at_least=-(-size // most), at_most=max(1, size // least))
    except StudyError as none:
        if size < 1:
            raise
        raise StudyError(
            f"a side of {size} is no whole number of tiles of {least} to {most} elements", hint=f"pad it; {none.hint}"
        ) from None


ELEMENTS = {"bf16": bfloat16, "f32": float32}
"""Types of elements that networks are made of, by name."""


def element_type(name: str) -> object:
    """An element type as programs take it; of several with commas between, each operator has one.

    Raises:
        StudyError: for a name that is none of `ELEMENTS`.
    """
    names = list(dict.fromkeys(one.strip() for one in name.split(",")))
    if not ELEMENTS.keys() >= set(names):
        raise StudyError(f"no element type {name!r} for networks", hint=f"of {', '.join(ELEMENTS)}, one or several")
    return ELEMENTS[names[0]] if len(names) == 1 else choices(ELEMENTS[one] for one in names)
