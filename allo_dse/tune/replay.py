"""Evaluating a design of an earlier run again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StudyError
from .bench import measure
from .log import read_log
from .record import Record
from .rundir import MARKER, RunInfo
from .spec import StudySource, StudySpec, Verification

TOLERANCE = 1e-9  # relative; the simulators give the same numbers bit for bit


@dataclass(frozen=True)
class Replay:
    """What a design measured when it was recorded and measures now.

    Attributes:
        rows: metric, recorded value, value now.
        text: what differs, or why it could not be evaluated; empty when nothing differs.
    """

    key: str
    rows: list[tuple[str, Any, Any]]
    text: str
    verification: Verification | None = None

    @property
    def same(self) -> bool:
        return not self.text

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "key": self.key,
            "same": self.same,
            "differences": self.text,
            "metrics": {name: {"recorded": a, "now": b} for name, a, b in self.rows},
            "verified": None if self.verification is None else self.verification.ok,
        }


def replay_design(path: Path, key: str, *, study_file: Path | None = None, verify: bool = False) -> Replay:
    """Evaluate a recorded design again, with the evaluator that measured it. Executes the study file.

    Raises:
        StudyError: when the run did not come from a study file, or the study has changed.
    """
    info = RunInfo.from_dict(json.loads((path / MARKER).read_text()))
    study = _study(info, study_file, path)
    record = _record(path, key)
    candidate = study.space.decode_genes(record.genes)
    if candidate is None or candidate.key != key:
        raise StudyError(
            f"design {key} is not in the study's space any more",
            hint="the program, the device or the parameters have changed since it was recorded",
        )
    evaluator = study.make_evaluator()
    recorded = record.metrics or {}
    finding = measure(evaluator, candidate)
    now, error = finding.metrics or {}, finding.error
    rows = [(name, recorded.get(name), now.get(name)) for name in dict.fromkeys([*recorded, *now])]
    different = [name for name, a, b in rows if not _equal(a, b)]
    text = ", ".join(different)
    if error != record.error and (error is not None or not now):
        text = f"recorded {record.error or 'metrics'}, now {error}"
    verification = study.verify(candidate.design, info.seed) if verify else None
    return Replay(key, rows, text, verification)


def _study(info: RunInfo, study_file: Path | None, path: Path) -> StudySpec:
    from .loader import load_study

    source = info.study_source
    if source is None and study_file is None:
        raise StudyError(f"{path} was not made from a study file", hint="name the file that defines it with --study")
    stored = source or {"file": "", "function": info.study, "settings": {}}
    file = str(study_file or stored["file"])
    return load_study(StudySource(file, stored["function"], stored["settings"]))


def _record(path: Path, key: str) -> Record:
    entries = (e for e in read_log(path / "log.jsonl").entries if e["type"] == "design" and e["key"] == key)
    found = next((Record.from_dict(e) for e in entries if e["status"] != "violation" and not e.get("rung")), None)
    if found is None:
        raise StudyError(f"{path} has no evaluated design {key}")
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    return bool(a == b)
