"""Graphs for Cytoscape: elements with their facts, and the style sheet."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.drawing.summary import Summary
from allo_dse.drawing.svg import styles
from allo_dse.eval.backend import Placement
from allo_dse.eval.recording import Recorded

from .style import FONT, Spec, Theme

# Facts about the boxes and streams of a graph in a recorded run.


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
    found: list[Facts] = [
        [
            ("streams", f"{flow.streams:,}"),
            ("tokens over the run", "depends on data" if flow.tokens is None else f"{flow.tokens:,}"),
        ]
        for flow in summary.flows
    ]
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


def _span(values: Sequence[int] | Ints) -> str:
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


LAYERS: Spec = {"name": "dagre", "rankDir": "TB", "nodeSep": 18, "rankSep": 44, "animate": False, "padding": 12}
"""Dagre's layered layout: streams lead downwards, as far as they form no cycle."""
IN_ROWS: Spec = {"name": "grid", "animate": False, "padding": 12, "avoidOverlap": True}
"""Of nodes without streams."""
_LINES = {"": "solid", "6 3": "dashed", "2 2": "dotted", "8 3 2 3": "dashed"}


def elements(summary: Summary, boxes: list[Facts], flows: list[Facts]) -> list[Spec]:
    """Nodes and edges; their data have the fields `title` and `facts`."""
    colors = styles(flow.array for flow in summary.flows)
    found = []
    for number, (box, facts) in enumerate(zip(summary.boxes, boxes, strict=True)):
        label = "\n".join([box.name, *box.lines])
        found.append({"data": {"id": f"n{number}", "label": label, "title": box.name, "facts": facts}})
    for number, (flow, facts) in enumerate(zip(summary.flows, flows, strict=True)):
        color, dash = colors[flow.array]
        ends = [summary.boxes[n].name for n in (flow.source, flow.target)]
        data = {
            "id": f"e{number}",
            "source": f"n{flow.source}",
            "target": f"n{flow.target}",
            "label": flow.array,
            "title": f"{flow.array}: {ends[0]} to {ends[1]}",
            "facts": facts,
            "color": color,
            "line": _LINES[dash],
        }
        found.append({"data": data})
    return found


def arrangement(summary: Summary) -> Spec:
    """Choose the layout of a graph."""
    return LAYERS if summary.flows else IN_ROWS


def stylesheet(look: Theme, wanted: str = "") -> list[Spec]:
    """Return the style of elements. Those whose label contains `wanted` stand out, the others fade."""
    every = [
        {
            "selector": "node",
            "style": {
                "label": "data(label)",
                "text-wrap": "wrap",
                "text-max-width": "220px",
                "text-valign": "center",
                "font-size": "11px",
                "font-family": FONT,
                "color": look.text,
                "shape": "round-rectangle",
                "width": "label",
                "height": "label",
                "padding": "8px",
                "background-color": look.grid,
                "border-width": 1,
                "border-color": look.muted,
            },
        },
        {
            "selector": "edge",
            "style": {
                "width": 2,
                "curve-style": "bezier",
                "line-color": "data(color)",
                "line-style": "data(line)",
                "target-arrow-shape": "triangle",
                "target-arrow-color": "data(color)",
            },
        },
        {"selector": "node:selected", "style": {"border-width": 3, "border-color": look.front}},
        {"selector": "edge:selected", "style": {"width": 5}},
    ]
    if not wanted.strip():
        return every
    hit = f"[label @*= {json.dumps(wanted.strip())}]"  # @: whatever its case
    return [
        *every,
        {"selector": "node, edge", "style": {"opacity": 0.25}},
        {"selector": f"node{hit}", "style": {"opacity": 1, "border-width": 3, "border-color": look.front}},
        {"selector": f"edge{hit}", "style": {"opacity": 1, "width": 4}},
    ]
