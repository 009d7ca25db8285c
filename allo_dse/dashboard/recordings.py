"""Recorded runs of designs, for timelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..eval.simulator.explain import Explanation
from ..eval.simulator.labels import Labels, node_label
from ..eval.simulator.timeline import Activity, Timeline

PARTS = (Activity.WORK, Activity.WAIT_GET, Activity.WAIT_PUT, Activity.WAIT_RESOURCE)
"""What `Total.shares` are of; being served by a resource counts as work."""


@dataclass(frozen=True)
class Total:
    """What the processing elements of a kind did over a whole run.

    Attributes:
        name: of the kind; count: how many there are.
        shares: of the run's cycles, mean over the elements, per `PARTS`; what is missing to 1 is idle.
    """

    name: str
    count: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Recorded:
    """What happened in a run, or in its beginning.

    Attributes:
        explanation: of what the timeline has; None when only some of that was kept.
        words: what was run.
        totals: of the whole run.
        span: what the timeline is of, within a sentence.
        ticks_per_cycle: units of the timeline in a clock cycle.
    """

    timeline: Timeline
    explanation: Explanation | None
    words: str
    totals: tuple[Total, ...]
    span: str = "run"
    ticks_per_cycle: int = 1


def record(design: Any, depths: Mapping[str, int] | None = None) -> Recorded:
    """Run a design and keep what happened: of an NPU design the first period, of an FPGA design as much as can be kept.

    Args:
        depths: stream depths that an FPGA design was measured with.

    Raises:
        AlloDseError: if it cannot be simulated.
    """
    return _npu(design) if design.device.family == "npu" else _fpga(design, depths)


def _npu(design: Any) -> Recorded:
    from ..eval.npu_recording import record_npu

    found = record_npu(design, periods=1)
    line = found.result.timeline
    why = found.result.explain() if line.events.is_complete else None
    words = f"The first of {found.of:,} periods of each core's schedule."
    work = line.node_cycles[:, Activity.WORK] + line.node_cycles[:, Activity.SERVICE]
    parts = [work, *(line.node_cycles[:, activity] for activity in PARTS[1:])]
    names = [_npu_kind(name) for name in found.labels.processes]
    totals = _totals(names, parts, line.cycles)
    return Recorded(line, why, words, totals, "period", found.ticks_per_cycle)


def _npu_kind(process: str) -> str:
    """Processes are called "core …", "memory tile: …" and "shim: …"."""
    return "cores" if process.startswith("core ") else f"{process.partition(':')[0]} channels"


def _fpga(design: Any, depths: Mapping[str, int] | None) -> Recorded:
    from ..eval.fpga_recording import record_fpga

    found = record_fpga(design, depths)
    result, whole = found.result, found.whole
    stalls = [whole.stall_get, whole.stall_put, whole.stall_request]
    labels: Labels = result.labels
    names = [_fpga_kind(node_label(labels, result.network, node)) for node in range(result.network.node_count)]
    totals = _totals(names, [whole.node_end - sum(stalls), *stalls], whole.cycles)
    if found.is_whole:
        words, span = f"The whole run of {whole.cycles:,} cycles", "run"
    else:
        words = f"The first {result.cycles:,} of {whole.cycles:,} cycles: as many operations as are kept"
        span = "beginning"
    return Recorded(result.timeline, result.explain(), f"{words}, at the cost model's intervals.", totals, span)


def _fpga_kind(name: str) -> str:
    """Elements by kernel: "pe_0_1" and "pe_0_2 and 3 more" are both "pe"; copies are of their own kind."""
    head = name.partition(" and ")[0]
    while head.rpartition("_")[2].isdigit() and head.rpartition("_")[0]:
        head = head.rpartition("_")[0]
    return head


def _totals(names: list[str], parts: list[NDArray[Any]], cycles: int) -> tuple[Total, ...]:
    """Means by kind, in the order in which kinds occur."""
    kinds = dict.fromkeys(names)
    of = np.array(names)
    shares = np.stack([np.asarray(part, float) for part in parts], axis=1) / max(1, cycles)
    return tuple(
        Total(kind, int((of == kind).sum()), tuple(shares[of == kind].mean(axis=0).tolist())) for kind in kinds
    )
