"""Writing timelines to files, in the format that a file's suffix names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.errors import SimulationError
from allo_dse.common.quoting import csv_cell
from allo_dse.common.whole_files import whole_file, write_whole
from allo_dse.simulator.engine.explanation import Explanation
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.engine.timeline import Activity, Timeline
from allo_dse.simulator.network.labels import Labels

from .svg import timeline_svg

if TYPE_CHECKING:
    import pandas as pd

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
