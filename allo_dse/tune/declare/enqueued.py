"""Designs that a study begins with: by hand, from elsewhere, or known parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.space.gene import Genes, random_suggest, suggest_from
from allo_dse.space.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allo_dse.space.design import Design
    from allo_dse.space.params import ParameterSpace

MOST_DRAWN = 1000  # designs with given parameters, before there seems to be no legal one


def genes_of(
    wanted: Design | Mapping[str, Any],
    space: Space,
    parameters: ParameterSpace,
    check: Callable[[Design], Sequence[Any]],
) -> Genes:
    """The genes of a design, or of any legal design that has the given values of parameters.

    Raises:
        StudyError: when the space has no such design.
    """
    if not isinstance(wanted, Mapping):
        return space.encode(wanted)
    given: Genes = {}
    for name, value in wanted.items():
        values = parameters.free[name].values if name in parameters.free else ()
        if value not in values:
            told = f"one of {', '.join(map(str, values))}" if values else f"there are {', '.join(parameters.free)}"
            raise StudyError(f"no parameter {name}={value!r} can be enqueued", hint=told)
        given[f"param.{name}"] = values.index(value)
    rng = np.random.default_rng(0)
    for _ in range(MOST_DRAWN):
        try:
            candidate = space.decode(suggest_from(given, random_suggest(rng)))
            if candidate is not None and not check(candidate.design):
                return candidate.genes
        except AlloDseError:  # does not compile, or cannot be folded
            continue
    raise StudyError(f"no legal design with {dict(wanted)} was found in {MOST_DRAWN} attempts")
