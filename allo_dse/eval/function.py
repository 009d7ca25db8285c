"""A plain function of a design as an evaluator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from allo_dse.space.design import Design

from .evaluator import Metrics


class FunctionEvaluator:
    """Measures designs by calling a function.

    Args:
        function: of a design; returns metrics as a mapping, or one number, which is a metric of the function's name.
            Its attributes `version`, `isolate`, `deadline_s`, `memory_bytes` and `resource` count as an evaluator's.
    """

    def __init__(self, function: Callable[[Design], Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.version = str(getattr(function, "version", "1"))
        self.isolate = bool(getattr(function, "isolate", False))
        self.deadline_s: float | None = getattr(function, "deadline_s", None)
        self.memory_bytes: int | None = getattr(function, "memory_bytes", None)
        self.resource: str | None = getattr(function, "resource", None)

    def evaluate(self, design: Design) -> Metrics:
        """Call the function."""
        found = self.function(design)
        return Metrics(**(found if isinstance(found, Mapping) else {self.name: found}))


def takes_a_design(given: Any) -> bool:
    """Whether something is a function of a design, and not one that makes an evaluator."""
    return inspect.isfunction(given) and _needed(given) == 1


def needs_arguments(given: Any) -> bool:
    """Whether something can be called, but not without arguments."""
    return callable(given) and _needed(given) > 0


def _needed(given: Callable[..., Any]) -> int:
    """How many arguments a function needs that are given by their position."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except ValueError:  # of some functions in C nothing is known
        return 0
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
