"""A folded or unfolded graph, layer by layer: streams lead downwards as far as they form no cycle."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.mapper.fold.vmg import VMG

from .canvas import BOLD, Canvas, fit, styles, text_width
from .layers import GAP_X, lay_out
from .line_texts import SIZE
from .summary import Box, Flow, Summary, summarise
from .wires import MOST_LABELS, Wires, amount

_LINE, _PAD = 14.0, 8.0
_LEFT, _TOP = 16.0, 70.0
_FEW = 10
"""Boxes that are set so far apart that the streams' amounts fit between them, which takes this much beside the text."""
_BESIDE = 52.0


def vmg_svg(vmg: VMG) -> str:
    """The picture: a box per node, or per group of alike nodes where there are too many to see."""
    summary = summarise(vmg)
    canvas = Canvas(f"{vmg.program.name}: {vmg.node_count:,} nodes")
    canvas.text(_LEFT, 24, _title(vmg), size=15, bold=True)
    canvas.text(_LEFT, 42, _subtitle(vmg, summary), faint=True)
    colors = styles(flow.array for flow in summary.flows)
    width = max(_box_width(box) for box in summary.boxes)
    height = max(2 * _PAD + _LINE * (1 + len(box.lines)) for box in summary.boxes)
    texts = [amount([flow]) for flow in summary.flows]
    roomy = len(summary.boxes) <= _FEW and 0 < len(texts) <= MOST_LABELS
    gap = max(text_width(text, SIZE) for text in texts) + _BESIDE if roomy else GAP_X
    layout = lay_out(summary, width, height, (_LEFT, _TOP), gap=gap)
    wires = Wires(canvas, layout, summary.flows, colors)
    wires.draw()
    for box, (x, y) in zip(summary.boxes, layout.corners, strict=True):
        _draw_box(canvas, box, x, y, width, height)
    legend = [(_legend(name, summary.flows), *style) for name, style in colors.items()]
    canvas.legend(_LEFT, layout.bottom + 34, legend, max(560.0, canvas.width - _LEFT))
    return str(canvas)


def _title(vmg: VMG) -> str:
    program = vmg.program.name
    if vmg.node_count == vmg.task_count:
        return f"{program}: {vmg.task_count:,} tasks"
    return f"{program}: {vmg.task_count:,} tasks on {vmg.node_count:,} nodes"


def _subtitle(vmg: VMG, summary: Summary) -> str:
    streams = sum(flow.streams for flow in summary.flows)
    what = {
        "node": "each box is a node",
        "group": "nodes with one schedule are one box",
        "kernel": "one box per kernel",
    }
    return f"{streams:,} stream{'' if streams == 1 else 's'} between nodes; {what[summary.level]}"


def _legend(name: str, flows: Sequence[Flow]) -> str:
    own = [flow for flow in flows if flow.array == name]
    return f"{name}: {amount(own)}"


def _box_width(box: Box) -> float:
    widest = max(text_width(box.name, 12) * BOLD, *(text_width(line, 10) for line in box.lines), 60.0)
    return min(230.0, widest) + 2 * _PAD + 1


def _draw_box(canvas: Canvas, box: Box, x: float, y: float, width: float, height: float) -> None:
    for shadow in (6, 3) if box.nodes > 1 else ():
        canvas.box(x + shadow, y - shadow, width, height, opacity=0.0)
    canvas.box(x, y, width, height, tip=box.tip, opacity=0.15)
    canvas.text(x + _PAD, y + _PAD + 10, fit(box.name, (width - 2 * _PAD) / BOLD, 12), size=12, bold=True)
    for number, line in enumerate(box.lines, 1):
        text = fit(line, width - 2 * _PAD, 10)
        canvas.text(x + _PAD, y + _PAD + 10 + _LINE * number, text, size=10, faint=True)
