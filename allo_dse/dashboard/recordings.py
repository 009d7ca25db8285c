"""Facts about the boxes and streams of a graph in a recorded run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.drawing.summary import Flow, Summary
from allo_dse.eval.backend import Placement
from allo_dse.eval.recording import Recorded

Ints = NDArray[np.int64]
Facts = list[tuple[str, str]]
"""Names and values, to be shown as they are."""

_PARTS = ("works", "waits for a token", "waits for room", "waits for DRAM")
"""Names of `eval.recording.PARTS`, in the same order."""


def box_facts(summary: Summary, run: Recorded | None, placed: Placement | None) -> list[Facts]:
    """Return each box's tasks, memory and activity. For a box of several nodes: mean activity and largest memory."""
    found: list[Facts] = []
    for number, box in enumerate(summary.boxes):
        nodes = np.flatnonzero(summary.box_of_node == number)
        found.append([("runs", box.tip), *box.facts])
        if placed is not None:
            found[-1].append(("memory", placed.memory_of(nodes.tolist())))
        if run is not None:
            shares = run.shares[np.isin(run.nodes, nodes)]
            if len(shares):
                means = shares.mean(axis=0)
                found[-1] += [(name, f"{share:.0%}") for name, share in zip(_PARTS, means, strict=True)]
                found[-1].append(("idle", f"{max(0.0, 1 - means.sum()):.0%}"))
    return found


def flow_facts(summary: Summary, run: Recorded | None) -> list[Facts]:
    """Return each flow's depth, peak number of tokens, and number of tokens transferred."""
    found: list[Facts] = [_counts(flow) for flow in summary.flows]
    if run is None:
        return found
    box = np.append(summary.box_of_node, -1)  # of no node: none
    source, target = (box[ends] for ends in run.ends)
    arrays = np.array(run.arrays)
    depth, whole = run.recording.network.depth, run.recording.whole
    for facts, flow in zip(found, summary.flows, strict=True):
        own = np.flatnonzero((arrays == flow.array) & (source == flow.source) & (target == flow.target))
        if len(own):
            facts += [
                ("depth", _span(depth[own])),
                ("most tokens held at a time", _span(whole.occupancy[own])),
                ("tokens simulated", f"{int(whole.puts[own].sum()):,}"),
            ]
    return found


def _counts(flow: Flow) -> Facts:
    tokens = "depends on data" if flow.tokens is None else f"{flow.tokens:,}"
    return [("streams", f"{flow.streams:,}"), ("tokens over the run", tokens)]


def _span(values: Sequence[int] | Ints) -> str:
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
