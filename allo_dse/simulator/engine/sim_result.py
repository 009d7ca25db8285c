"""Common interface of simulation results: a run of tasks or the replay of a trace."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..deadlock import Deadlock
from ..network.network import IntArray


@runtime_checkable
class SimResult(Protocol):
    """Times and counts of one simulation, in cycles; per processing element (process) and per stream."""

    @property
    def cycles(self) -> int:
        """The makespan."""
        ...

    @property
    def finished(self) -> bool:
        """True if everything has run to its end; otherwise `deadlock` says why not."""
        ...

    @property
    def deadlock(self) -> Deadlock | None:
        """Blocked tasks, and the cycle of tasks that wait for each other; None for a finished run."""
        ...

    @property
    def stall_get(self) -> IntArray:
        """Per processing element the cycles it waited for tokens."""
        ...

    @property
    def stall_put(self) -> IntArray:
        """Per processing element the cycles it waited for room."""
        ...

    @property
    def occupancy(self) -> IntArray:
        """Per stream the most tokens it held at one time."""
        ...

    def require_finished(self) -> None:
        """Raises DeadlockError, naming who waits for whom and what clears it, if the simulation did not finish."""
        ...

    def summary(self) -> dict[str, object]:
        """The totals as plain data."""
        ...

    def by_stream(self) -> list[dict[str, object]]:
        """One row per stream: name, depth, tokens and occupancy, and what else is known."""
        ...
