"""A design's whole run, and any part of it in detail."""

from __future__ import annotations

from msgspec import Struct

from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.recording import Samples
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Labels, Network

MAX_EVENTS = 300_000
"""Most operations kept of a part; a part with more ends earlier."""
SAMPLES = 400
"""Points in time at which progress is sampled."""


class Recording(Struct, frozen=True):
    """The events of a run: totals and samples of the whole, and every operation of any chosen part.

    Attributes:
        whole: the whole run, without single operations.
    """

    network: Network
    labels: Labels
    whole: RunResult
    max_events: int = MAX_EVENTS

    @property
    def cycles(self) -> int:
        """The network's clock at the end."""
        return self.whole.cycles

    @property
    def samples(self) -> Samples:
        """Progress of all processes, sampled during the run."""
        assert self.whole.samples is not None
        return self.whole.samples

    @property
    def executed(self) -> int:
        """Stream operations of the whole run that had to be executed, since they do not repeat others."""
        return self.whole.operations - self.whole.skipped

    @property
    def length(self) -> int:
        """Longest part in cycles whose operations can all be kept, at the average rate; all of a short run."""
        operations = self.whole.operations + int(self.whole.resource_requests.sum())
        if operations <= self.max_events:
            return self.cycles
        return max(1, int(self.cycles * (0.9 * self.max_events / operations)))

    def part(self, start: int = 0, end: int | None = None) -> RunResult:
        """Return every operation between two cycles, by default of the whole run.

        Repeating parts before it are not executed. The timeline says where the part ends if there were too many
        operations.
        """
        end = self.cycles if end is None else end
        repeats = self.whole.skipped > 0  # look for repetition only if there is any
        result = table_engine().run(self.network, record=self.max_events, window=(start, end), extrapolate=repeats)
        result.labels = self.labels
        return result


def whole_run(network: Network, labels: Labels) -> RunResult:
    """Run a network to its end, and sample its progress.

    Raises:
        DeadlockError: if it does not finish.
    """
    whole = table_engine().run(network, extrapolate=True, samples=SAMPLES)
    whole.require_finished(labels)
    return whole
