"""Drawing a timeline as a self-contained SVG: a row per processing element, and the tokens in the busiest FIFOs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.files import whole_file, write_whole
from allo_dse.common.quoting import csv_cell, html_text
from allo_dse.simulator.engine.explanation import KINDS, CriticalPath, Explanation
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Activity, Occupancy, Timeline
from allo_dse.simulator.network.network import IntArray, Labels, node_label

if TYPE_CHECKING:
    import pandas as pd

COLORS = {
    Activity.WORK: ("works", "#2f6f9f"),
    Activity.WAIT_GET: ("waits for a token", "#e8b04a"),
    Activity.WAIT_PUT: ("waits for room", "#c8553d"),
    Activity.WAIT_RESOURCE: ("waits for a resource", "#8d6aa8"),
    Activity.SERVICE: ("is served by a resource", "#5fa777"),
}
BINS = 300
LABEL = 34
"""Characters of a row's label."""
LEFT, WIDTH, TOP = 230, 900, 80
NODE_ROW, FIFO_ROW, GAP = 16, 30, 5
MOST_NODE_ROWS, MOST_FIFO_ROWS = 48, 8  # rows at most

FloatArray = NDArray[np.float64]


def timeline_svg(explanation: Explanation) -> str:
    """Draw a timeline. Of many nodes or streams, those most on the critical path are shown, then the busiest.

    The height of a colour in a row is the share of cycles, around that time, that the element spends on it.
    """
    timeline, labels = explanation.timeline, explanation.labels
    nodes = _chosen(explanation, "node", timeline.node_cycles[:, Activity.WORK], MOST_NODE_ROWS)
    streams = _chosen(explanation, "stream", _waits(timeline), MOST_FIFO_ROWS)
    parts = [_text(10, 24, explanation.sentence, 'font-size="15" font-weight="bold"'), *_legend()]
    y = TOP
    for node in nodes:
        parts += _row_label(node_label(labels, timeline.network, node), y + NODE_ROW - 4)
        mine = timeline.intervals[timeline.intervals["node"] == node]
        parts += _stack(mine, timeline, y)
        y += NODE_ROW + GAP
    parts += _axis(timeline, TOP, y)
    y += 50
    left_out = [_more(timeline.network.node_count - len(nodes), "processing elements")]
    for stream in streams:
        depth = int(timeline.network.depth[stream])
        parts += _row_label(f"{labels.stream(stream)} (0 to {depth} tokens)", y + FIFO_ROW // 2 + 4)
        parts.append(_tokens(timeline.occupancy(stream), depth, timeline, y))
        y += FIFO_ROW + GAP
    left_out.append(_more(timeline.network.stream_count - len(streams), "FIFOs"))
    parts.append(_text(LEFT, y + 16, "; ".join(filter(None, left_out))))
    size = f'width="{LEFT + WIDTH + 40}" height="{y + 30}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _more(count: int, what: str) -> str:
    return f"{count:,} more {what} are not shown" if count else ""


def _chosen(explanation: Explanation, where: str, weight: IntArray, most: int) -> list[int]:
    """Return at most so many nodes or streams, in order of their numbers."""
    weight = weight.astype(np.float64)
    for contributor in explanation.contributors:
        if contributor.where == where:
            weight[contributor.number] += contributor.cycles * 1e6
    return sorted(np.argsort(-weight, kind="stable")[:most].tolist())


def _waits(timeline: Timeline) -> IntArray:
    """Cycles that nodes waited per stream."""
    table = timeline.intervals
    table = table[table["activity"].isin([Activity.WAIT_GET, Activity.WAIT_PUT])]
    waits = np.bincount(table["on"], weights=table["end"] - table["start"], minlength=timeline.network.stream_count)
    return waits.astype(np.int64)


def _stack(intervals: pd.DataFrame, timeline: Timeline, y: int) -> Iterator[str]:
    """One node's activities over time, stacked."""
    edges = _edges(timeline)
    base = np.zeros(BINS)
    for activity, (name, color) in COLORS.items():
        mine = intervals[intervals["activity"] == activity]
        if not len(mine):
            continue
        share = np.diff(_cumulative(mine, edges)) / (edges[1] - edges[0])
        outline = [*_stairs(base, y), *reversed(list(_stairs(base + share, y)))]
        yield f'<path d="M{"L".join(outline)}Z" fill="{color}"><title>{name}</title></path>'
        base = base + share


def _edges(timeline: Timeline) -> FloatArray:
    """Return the edges of the bins of time."""
    return np.linspace(timeline.start, max(timeline.start + 1, timeline.end), BINS + 1)


def _cumulative(intervals: pd.DataFrame, edges: FloatArray) -> FloatArray:
    """Cycles in the intervals up to each edge."""
    start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
    done = np.cumsum(end - start)
    times = np.stack([start, end], axis=1).ravel()
    values = np.stack([done - (end - start), done], axis=1).ravel()
    found: FloatArray = np.interp(edges, times, values)
    return found


def _stairs(height: FloatArray, y: int) -> Iterator[str]:
    """Corners of a step line; `height` is one per bin, 0 at the bottom of the row and 1 at its top."""
    heights = np.round(height, 2)
    turns = np.concatenate(([0], np.flatnonzero(np.diff(heights)) + 1, [len(heights)]))
    for first, last in zip(turns[:-1].tolist(), turns[1:].tolist(), strict=True):
        level = y + NODE_ROW * (1 - float(heights[first]))
        yield f"{LEFT + WIDTH * first / BINS:.4g} {level:.4g}"
        yield f"{LEFT + WIDTH * last / BINS:.4g} {level:.4g}"


def _tokens(held: Occupancy, depth: int, timeline: Timeline, y: int) -> str:
    """The most tokens in a FIFO in each bin of time."""
    edges = _edges(timeline)
    most = np.zeros(BINS)
    place = np.clip(np.searchsorted(edges, held.time, side="right") - 1, 0, BINS - 1)
    np.maximum.at(most, place, held.tokens)
    at_start = held.tokens[np.maximum(np.searchsorted(held.time, edges[:-1], side="right") - 1, 0)]
    most = np.maximum(most, at_start)
    bars = []
    for i, tokens in enumerate(most.tolist()):
        top = y + FIFO_ROW * (1 - tokens / depth)
        bars.append(f"{LEFT + WIDTH * i / BINS:.4g} {top:.4g}L{LEFT + WIDTH * (i + 1) / BINS:.4g} {top:.4g}")
    outline = "L".join([f"{LEFT} {y + FIFO_ROW}", *bars, f"{LEFT + WIDTH} {y + FIFO_ROW}"])
    return f'<path d="M{outline}Z" fill="#9db8c9" stroke="#46697f" stroke-width="0.5"/>'


def _axis(timeline: Timeline, top: int, bottom: int) -> Iterator[str]:
    """Ticks at round numbers of cycles."""
    cycles = max(1, timeline.cycles)
    step = _round_step(cycles / 8)
    yield f'<line x1="{LEFT}" y1="{bottom}" x2="{LEFT + WIDTH}" y2="{bottom}" stroke="black"/>'
    for tick in range(-(-timeline.start // step) * step, timeline.end + 1, step):
        x = LEFT + WIDTH * (tick - timeline.start) / cycles
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom + 4}" stroke="#00000030"/>'
        yield _text(x, bottom + 16, f"{tick:,}", 'text-anchor="middle"')
    yield _text(LEFT + WIDTH / 2, bottom + 34, "time (cycles)", 'text-anchor="middle"')


def _round_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is not below `least`."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale >= least:
                return step * scale
        scale *= 10


def _legend() -> Iterator[str]:
    x = LEFT
    for name, color in COLORS.values():
        yield f'<rect x="{x}" y="42" width="12" height="12" fill="{color}"/>'
        yield _text(x + 17, 52, name)
        x += 40 + 7 * len(name)


def _row_label(name: str, y: float) -> list[str]:
    if len(name) <= LABEL:
        return [_text(LEFT - 8, y, name, 'text-anchor="end"')]
    return [_text(LEFT - 8, y, f"{name[: LABEL - 1]}…", 'text-anchor="end"', title=name)]


def _text(x: float, y: float, text: str, style: str = "", *, title: str = "") -> str:
    tooltip = f"<title>{html_text(title)}</title>" if title else ""
    return f'<text x="{x:.4g}" y="{y:.4g}" {style}>{tooltip}{html_text(text)}</text>'


# Writing timelines to files; the suffix selects the format.


TABLES = (".csv", ".parquet")
SUFFIXES = (".svg", ".json", *TABLES)


def save_timeline(result: RunResult, path: str | Path, labels: Labels | None = None) -> None:
    """Write a recorded run's timeline; the suffix of `path` says how.

    `.svg` draws it; `.json` is the explanation; `.csv` and `.parquet` (needs pyarrow) are the table of intervals.

    Raises:
        SimulationError: for other suffixes, for `.parquet` without pyarrow, and if the run was not recorded as a whole.
    """
    path, explanation = Path(path), result.explain(labels)
    suffix = path.suffix.lower()
    if suffix == ".svg":
        write_whole(path, timeline_svg(explanation))
    elif suffix == ".json":
        write_whole(path, json.dumps(explanation.to_dict(), indent=1) + "\n")
    elif suffix in TABLES:
        _write_table(path, interval_table(explanation))
    else:
        _refuse(path, SUFFIXES)


def save_occupancy(result: RunResult, path: str | Path, labels: Labels | None = None) -> None:
    """Write how many tokens each stream of a recorded run holds over time, as `.json`, `.csv` or `.parquet`.

    Raises:
        SimulationError: for other suffixes, for `.parquet` without pyarrow, and if the run was not recorded.
    """
    path, labels = Path(path), labels or result.labels
    if path.suffix.lower() == ".json":
        table = occupancy_table(result.timeline, labels)
        write_whole(path, table.to_json(orient="records") + "\n")
    elif path.suffix.lower() in TABLES:
        _write_table(path, occupancy_table(result.timeline, labels))
    else:
        _refuse(path, (".json", *TABLES))


def _write_table(path: Path, table: pd.DataFrame) -> None:
    is_csv = path.suffix.lower() == ".csv"
    if is_csv:
        table = table.apply(lambda column: column.map(csv_cell) if column.dtype == object else column)
    elif find_spec("pyarrow") is None:
        raise SimulationError(f"{path}: writing parquet needs pyarrow", hint="pip install pyarrow, or write .csv")
    with whole_file(path) as scratch:
        (table.to_csv if is_csv else table.to_parquet)(scratch, index=False)


def _refuse(path: Path, suffixes: Sequence[str]) -> None:
    raise SimulationError(f"{path}: cannot write this as {path.suffix!r}", hint=f"use one of {', '.join(suffixes)}")


def occupancy_table(timeline: Timeline, labels: Labels) -> pd.DataFrame:
    """Columns stream, name, cycle, tokens: from that cycle on the stream holds so many tokens; by stream and cycle."""
    import pandas as pd

    streams = range(timeline.network.stream_count)
    held = [timeline.occupancy(stream) for stream in streams]
    counts = [len(each.time) for each in held]
    none = [np.zeros(0, np.int64)]
    return pd.DataFrame(
        {
            "stream": np.repeat(np.arange(len(held)), counts),
            "name": np.repeat(np.array([labels.stream(stream) for stream in streams], object), counts),
            "cycle": np.concatenate([*none, *(each.time for each in held)]),
            "tokens": np.concatenate([*none, *(each.tokens for each in held)]),
        }
    )


def interval_table(explanation: Explanation) -> pd.DataFrame:
    """`Timeline.intervals` with the names of tasks, activities, streams and resources beside their numbers."""
    table, labels = explanation.timeline.intervals, explanation.labels
    resource = table["activity"].isin([Activity.WAIT_RESOURCE, Activity.SERVICE])
    tasks = {task: labels.task(task) for task in np.unique(table["task"]).tolist()}
    streams = {s: labels.stream(s) for s in np.unique(table["on"][~resource & (table["on"] >= 0)]).tolist()}
    servers = {r: labels.resource(r) for r in np.unique(table["on"][resource]).tolist()}
    named = table["on"].map(streams).where(~resource, table["on"].map(servers))
    return table.assign(
        activity=table["activity"].map({int(a): a.name.lower() for a in Activity}),
        task_name=table["task"].map(tasks),
        on_name=named,
    )


# Writing a timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.
#
# Format: the Trace Event Format's JSON object with `traceEvents`: complete events (`ph` X) for what processing
# elements do, counters (C) for tokens in FIFOs, metadata (M) for names. Times are microseconds.


NODES, FIFOS, PATH = 1, 2, 3
"""Process numbers of the groups of tracks."""

_NAMES = {
    Activity.WORK: "{task}",
    Activity.WAIT_GET: "wait for {on}",
    Activity.WAIT_PUT: "wait for room in {on}",
    Activity.WAIT_RESOURCE: "wait for {on}",
    Activity.SERVICE: "served by {on}",
}


def save_perfetto(
    result: RunResult, path: str | Path, labels: Labels | None = None, *, clock_ghz: float | None = None
) -> None:
    """Write a recorded run as a Chrome trace; one cycle is shown as a microsecond unless the clock is given.

    Raises:
        SimulationError: if the run was not recorded.
    """
    timeline, labels = result.timeline, labels or result.labels
    chain = result.explain(labels).path if timeline.events.is_complete else None
    us_per_cycle = 1.0 if clock_ghz is None else 1e-3 / clock_ghz
    with whole_file(Path(path)) as scratch, scratch.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(_events(timeline, labels, chain, us_per_cycle)):
            file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")


def _events(
    timeline: Timeline, labels: Labels, chain: CriticalPath | None, us_per_cycle: float
) -> Iterator[dict[str, object]]:
    yield _name("process_name", NODES, 0, "processing elements")
    for node in range(timeline.network.node_count):
        yield _name("thread_name", NODES, node + 1, node_label(labels, timeline.network, node))
    yield from _activities(timeline, labels, us_per_cycle)
    yield _name("process_name", FIFOS, 0, "tokens in FIFOs")
    for stream in range(timeline.network.stream_count):
        held, track = timeline.occupancy(stream), labels.stream(stream)
        for time, tokens in zip(held.time.tolist(), held.tokens.tolist(), strict=True):
            at = {"ph": "C", "pid": FIFOS, "tid": 0, "ts": time * us_per_cycle}
            yield {"name": track, **at, "args": {"tokens": tokens}}
    if chain is not None:
        yield _name("process_name", PATH, 0, "critical path")
        yield _name("thread_name", PATH, 1, "critical path")
        yield from _chain(chain, labels, us_per_cycle)


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def _complete(pid: int, tid: int, start: int, end: int, us_per_cycle: float) -> dict[str, object]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start * us_per_cycle, "dur": (end - start) * us_per_cycle}


def _activities(timeline: Timeline, labels: Labels, us_per_cycle: float) -> Iterator[dict[str, object]]:
    for node, task, activity, start, end, on, op in timeline.intervals.itertuples(index=False, name=None):
        kind = Activity(activity)
        is_resource = kind in (Activity.WAIT_RESOURCE, Activity.SERVICE)
        target = "" if on < 0 else labels.resource(on) if is_resource else labels.stream(on)
        args: dict[str, object] = {"task": labels.task(task), "start_cycle": start, "cycles": end - start}
        if op >= 0:
            args["operation"] = labels.operation(task, op)
        yield {
            "name": _NAMES[kind].format(task=args["task"], on=target),
            "cat": kind.name.lower(),
            **_complete(NODES, node + 1, start, end, us_per_cycle),
            "args": args,
        }


def _chain(chain: CriticalPath, labels: Labels, us_per_cycle: float) -> Iterator[dict[str, object]]:
    for kind, task, on, start, end in chain.frame.itertuples(index=False, name=None):
        name = labels.task(task)
        if on >= 0:
            name = f"{name}: {labels.resource(on) if kind == KINDS[1] else labels.stream(on)}"
        yield {
            "name": name,
            "cat": kind,
            **_complete(PATH, 1, start, end, us_per_cycle),
            "args": {"cycles": end - start},
        }
