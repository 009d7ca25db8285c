"""Graphs for Cytoscape: elements with their facts, and the style sheet."""

from __future__ import annotations

import json

from allo_dse.drawing.summary import Summary
from allo_dse.drawing.svg import styles

from ..recordings import Facts
from .style import FONT, Spec, Theme

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
