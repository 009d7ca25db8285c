"""Workers that find designs, beside evaluating them, as the driver sees them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

OrderT = TypeVar("OrderT")
FoundT = TypeVar("FoundT")


class Breeders(Protocol[OrderT, FoundT]):
    """Workers that can be asked for designs, in orders of one kind."""

    def hired(self) -> int:
        """How many workers there are, or will be."""
        ...

    def idle(self) -> list[int]:
        """Workers that have no order."""
        ...

    def breeders(self) -> Collection[int]:
        """Those of all workers that together make full use of the cores where they run."""
        ...

    def order(self, worker: int, order: OrderT) -> None:
        """Ask a worker for designs."""
        ...

    def litters(self) -> list[tuple[OrderT, FoundT | None]]:
        """What has come back since it was last asked; None for what was lost."""
        ...

    def appetite(self) -> int:
        """How many designs all workers together have at a time, evaluating them and waiting."""
        ...

    def share(self) -> int:
        """How many of them one worker has."""
        ...

    def pace(self) -> float | None:
        """Seconds from one result to the next when all are busy; None as long as nothing is known."""
        ...
