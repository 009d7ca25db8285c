"""Compositions as files to build from, and as plain data."""

from __future__ import annotations

import json
from pathlib import Path

from allo_dse.common.aliases import JsonObject
from allo_dse.common.errors import StudyError

from .compose import Composition, Launch

BATCHES = (1, 16)
"""Inputs that go through a launch before the next one is begun, of which the throughput is told."""


def facts_of(composition: Composition) -> JsonObject:
    """A composition as JSON has it: times in microseconds."""
    return {
        "latency_us": round(composition.latency_us, 1),
        "bound_us": round(composition.bound_us, 1),
        "simulated_us": round(composition.simulated_us, 1),
        "inputs_per_s": {str(batch): round(composition.inputs_per_s(batch), 1) for batch in BATCHES},
        "columns": composition.columns,
        "certificate": composition.certificate,
        "time_us": {name: round(us, 1) for name, us in composition.time_us.items()},
        "launches": [_launch(launch) for launch in composition.launches],
    }


def _launch(launch: Launch) -> JsonObject:
    return {
        "number": launch.number,
        "start_us": round(launch.start_us, 1),
        "end_us": round(launch.end_us, 1),
        "columns": launch.columns,
        "runs": [
            {
                "step": run.step.name,
                "kind": run.step.work.kind,
                "reads": list(run.step.inputs),
                "writes": run.step.output,
                "design": run.point.design.study.name,
                "params": {k: v for k, v in run.point.design.params.items() if isinstance(v, int | float | str)},
                "first_column": run.first_column,
                "columns": run.point.columns,
                "cores": run.point.cores,
                "start_us": round(run.start_us, 1),
                "end_us": round(run.end_us, 1),
                "dram_bytes": run.point.dram_bytes,
                "bound": dict(run.point.bound),
            }
            for run in launch.runs
        ],
    }


def export(composition: Composition, directory: str | Path) -> list[Path]:
    """Write `network.json` and, for each launch, a folder for each of its designs: program, mapping and placement.

    Returns:
        the files. Raises StudyError where the directory is a file.
    """
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file", hint="a network is written into a folder of its own")
    written = []
    for launch in composition.launches:
        for key, run in launch.designs.items():
            written += run.point.design.export(folder / f"launch_{launch.number}" / key)
    folder.mkdir(parents=True, exist_ok=True)
    facts = folder / "network.json"
    facts.write_text(json.dumps(facts_of(composition), indent=1) + "\n")
    return [*written, facts]
