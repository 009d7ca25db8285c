"""One finished evaluation, as the run log keeps it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

Status = Literal["ok", "infeasible", "violation", "failed"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of one proposed design.

    Attributes:
        number: of the proposal it came from; -1 for violations, which are screened out before they become proposals.
        key: the design's canonical hash.
        status: "ok"; "infeasible" (evaluated, but a constraint of the study does not hold); "violation" (breaks a
            device limit, never evaluated); "failed" (the evaluator could not say).
        genes: what `Space.decode_genes` rebuilds the design from.
        params, fold, buffering: the same for readers; schedule and depths of the designs that have them.
        metrics: of the evaluator named in `evaluator`; empty unless evaluated.
        constraints: violation of each constraint of the study; 0 where it holds.
        violations: what broke, as {"constraint", "text"}.
        values: the objectives' values, where the metrics allow them.
        error: the reason of a failure.
        log: what an evaluator that failed had printed, as a file of the run directory.
        seconds: spent in the evaluator.
        at: seconds since the study began, without pauses between runs.
        rung: position of the evaluator in the study's ladder. A design has one record per rung it reached.
        worker: who evaluated it.
        cached: whether the result was taken from an earlier run.
    """

    number: int
    key: str
    status: Status
    genes: dict[str, int]
    params: dict[str, Any]
    fold: Any
    buffering: Any
    at: float
    metrics: dict[str, Any] | None = None
    constraints: dict[str, float] | None = None
    violations: list[dict[str, str]] | None = None
    values: dict[str, float] | None = None
    error: str | None = None
    log: str | None = None
    seconds: float = 0.0
    evaluator: str = ""
    rung: int = 0
    worker: str = ""
    cached: bool = False
    schedule: list[str] | None = None
    depths: dict[str, int] | None = None

    @property
    def evaluated(self) -> bool:
        """Whether it counts as a trial."""
        return self.status != "violation"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is empty is left out."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {"type": "design", **{k: v for k, v in values.items() if v is not None and v != _DEFAULTS.get(k)}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        if not values.keys() >= _REQUIRED:
            return cls(**values)  # which says what is missing
        # Past the constructor of a frozen class, which sets every field by a call: a resumed run reads 100,000 records.
        record = cls.__new__(cls)
        record.__dict__.update((name, value) for name, value in values.items() if name in _FIELDS)
        return record


_NAMES = tuple(field.name for field in fields(Record))
_FIELDS = frozenset(_NAMES)
_REQUIRED = frozenset(field.name for field in fields(Record) if field.default is MISSING)
_DEFAULTS = {"evaluator": "", "worker": "", "rung": 0, "cached": False}
