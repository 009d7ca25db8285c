"""Definitions of vendor kernels, which the study gives because the program only names them.

define_external("norm", lambda x, scale: x * scale, cycles=lambda x, scale, out: 4 * math.prod(x))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType


@dataclass(frozen=True)
class External:
    """A vendor kernel.

    Attributes:
        meaning: takes the input arrays and returns the output array, or a tuple of them in the order of `output_idx`.
        cycles: of one call: a number, or a function of the shapes of all arguments; None if unknown.
    """

    meaning: Callable[..., object]
    cycles: int | Callable[..., int] | None = None

    def cycles_for(self, shapes: tuple[tuple[int, ...], ...]) -> int | None:
        """Cycles of one call with arguments of these shapes."""
        return int(self.cycles(*shapes)) if callable(self.cycles) else self.cycles


@dataclass(frozen=True, eq=False)
class VliwKernel:
    """A function of the language that Allo compiles separately for one core; kernels call it as a vendor kernel.

    Here it is compiled together with the calling kernel. Its results go into the last arguments of the call.
    """

    function: FunctionType

    def get_external_module(self) -> VliwKernel:
        """Return the object that kernels call."""
        return self

    def __call__(self, *args: object) -> object:
        """Run the function in Python, outside of kernels."""
        return self.function(*args)


_KNOWN: dict[str, External] = {}


def define_external(top: str, meaning: Callable[..., object], cycles: int | Callable[..., int] | None = None) -> None:
    """Define the results and cycles of the vendor kernel `ExternalModule(top=...)`; the last definition counts.

    Args:
        meaning: takes the arrays that `input_idx` names, in order, and returns the array that `output_idx` names, or a
            tuple of them.
        cycles: of one call: a number, or a function of the shapes of all arguments.
    """
    _KNOWN[top] = External(meaning, cycles)


def external(top: str) -> External | None:
    """Return the definition of a vendor kernel, or None."""
    return _KNOWN.get(top)
