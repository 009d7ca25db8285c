"""Writing timelines to files, in the format that a file's suffix names."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import SimulationError
from .explain import Explanation
from .labels import resource_label
from .timeline import Activity
from .timeline_svg import timeline_svg

SUFFIXES = (".svg", ".json", ".csv", ".parquet")


def save_timeline(path: Path, explanation: Explanation) -> None:
    """Write `.svg` (drawing), `.json` (explanation), `.csv` or `.parquet` (intervals).

    Raises:
        SimulationError: for other suffixes, and for `.parquet` without pyarrow.
    """
    suffix = path.suffix.lower()
    if suffix == ".svg":
        path.write_text(timeline_svg(explanation), encoding="utf-8")
    elif suffix == ".json":
        path.write_text(json.dumps(explanation.to_dict(), indent=1) + "\n", encoding="utf-8")
    elif suffix == ".csv":
        interval_table(explanation).to_csv(path, index=False)
    elif suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise SimulationError(f"{path}: writing parquet needs pyarrow", hint="pip install pyarrow, or write .csv")
        interval_table(explanation).to_parquet(path, index=False)
    else:
        raise SimulationError(
            f"{path}: cannot write a timeline as {suffix!r}", hint=f"use one of {', '.join(SUFFIXES)}"
        )


def interval_table(explanation: Explanation) -> pd.DataFrame:
    """`Timeline.intervals` with the names of tasks, activities, streams and resources beside their numbers."""
    table, labels = explanation.timeline.intervals, explanation.labels
    resource = table["activity"].isin([Activity.WAIT_RESOURCE, Activity.SERVICE])
    tasks = {task: labels.task(task) for task in np.unique(table["task"]).tolist()}
    streams = {s: labels.stream(s) for s in np.unique(table["on"][~resource & (table["on"] >= 0)]).tolist()}
    servers = {r: resource_label(labels, r) for r in np.unique(table["on"][resource]).tolist()}
    named = table["on"].map(streams).where(~resource, table["on"].map(servers))
    return table.assign(
        activity=table["activity"].map({int(a): a.name.lower() for a in Activity}),
        task_name=table["task"].map(tasks),
        on_name=named,
    )
