"""What may look at a program while it is compiled, and stop where nothing can come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from allo_dse.common.errors import AlloDseError

from .tensors import TensorPort


class Hopeless(AlloDseError):
    """A program is not compiled any further."""


class Watch(Protocol):
    """Is shown what a program will have, as soon as that is known. Raises `Hopeless` where it need not be compiled."""

    def tasks(self, count: int) -> None:
        """There are so many tasks at least."""
        ...

    def ports(self, ports: Sequence[TensorPort]) -> None:
        """There are tasks with these tensor ports."""
        ...
