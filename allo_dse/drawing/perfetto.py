"""Writing a recorded run as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

Format: the Trace Event Format's JSON object with `traceEvents`: complete events (`ph` X) for what processing
elements do, counters (C) for tokens in FIFOs, metadata (M) for names. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from allo_dse.common.files import whole_file
from allo_dse.simulator.engine.explanation import KINDS, CriticalPath
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.network.network import Labels, node_label

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


def _target(labels: Labels, on: int, *, is_resource: bool) -> str:
    """Return the name of what a task waits for or is served by; empty if it works on its own."""
    return "" if on < 0 else labels.resource(on) if is_resource else labels.stream(on)


def _activities(timeline: Timeline, labels: Labels, us_per_cycle: float) -> Iterator[dict[str, object]]:
    for node, task, activity, start, end, on, op in timeline.intervals.itertuples(index=False, name=None):
        kind = Activity(activity)
        target = _target(labels, on, is_resource=kind in (Activity.WAIT_RESOURCE, Activity.SERVICE))
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
        target = _target(labels, on, is_resource=kind == KINDS[1])
        yield {
            "name": f"{labels.task(task)}: {target}".removesuffix(": "),
            "cat": kind,
            **_complete(PATH, 1, start, end, us_per_cycle),
            "args": {"cycles": end - start},
        }
