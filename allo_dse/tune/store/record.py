"""One finished evaluation, as the run log keeps it."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from .log import decode_line, json_bytes

Status = Literal["ok", "infeasible", "violation", "failed"]


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one proposed design.

    A run holds one per trial. What describes the design is only needed of a few of them: it stays JSON text, which
    takes less memory, and no time to read, until it is asked for.

    Attributes:
        number: of the proposal it came from; -1 for violations, which are screened out before they become proposals.
        key: the design's canonical hash.
        status: "ok"; "infeasible" (evaluated, but a constraint of the study does not hold); "violation" (breaks a
            device limit, never evaluated); "failed" (the evaluator could not say).
        genes_json, params_json, fold_json, buffering_json: text of the properties without the suffix.
        schedule, depths: of the designs that have them.
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
    genes_json: msgspec.Raw = msgspec.field(name="genes")
    params_json: msgspec.Raw = msgspec.field(name="params")
    fold_json: msgspec.Raw = msgspec.field(name="fold")
    buffering_json: msgspec.Raw = msgspec.field(name="buffering")
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

    @property
    def genes(self) -> dict[str, int]:
        """What `Space.decode_genes` rebuilds the design from."""
        genes: dict[str, int] = json_value(self.genes_json)
        return genes

    @property
    def params(self) -> dict[str, Any]:
        """The program's parameters, for readers."""
        params: dict[str, Any] = json_value(self.params_json)
        return params

    @property
    def fold(self) -> Any:
        """How the program is folded, for readers."""
        return json_value(self.fold_json)

    @property
    def buffering(self) -> Any:
        """How ports are buffered, for readers."""
        return json_value(self.buffering_json)

    def to_dict(self) -> dict[str, Any]:
        """What the log takes; what is empty is left out."""
        values = {name: getattr(self, field) for name, field in _FIELDS.items()}
        return {"type": "design", **{k: v for k, v in values.items() if v is not None and v != _DEFAULTS.get(k)}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """The record of an entry of a log."""
        fields: dict[str, Any] = {_FIELDS[name]: value for name, value in values.items() if name in _FIELDS}
        fields.update((field, json_text(fields[field])) for field in _TEXTS & fields.keys())
        return cls(**fields)


_FIELDS = dict(zip(Record.__struct_encode_fields__, Record.__struct_fields__, strict=True))  # by name in the log
_TEXTS = frozenset(field for name, field in _FIELDS.items() if field != name)
_DEFAULTS = {"evaluator": "", "worker": "", "rung": 0, "cached": False}
_DECODER = msgspec.json.Decoder(Record)
_START = b'{"type":"design",'


def json_text(value: Any) -> msgspec.Raw:
    """A value as a record keeps what describes its design."""
    return msgspec.Raw(json_bytes(value))


def json_value(text: msgspec.Raw) -> Any:
    """The inverse of `json_text`."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:  # infinities, which Python's JSON has
        return json.loads(bytes(text))


def decode_entry(line: bytes) -> Record | dict[str, Any]:
    """An intact line of a log: a record, or the values of an entry of another kind."""
    if line.startswith(_START):
        try:
            return _DECODER.decode(line)
        except msgspec.DecodeError:
            pass  # an infinite metric, which Python's JSON has
    values = decode_line(line) or {}
    return Record.from_dict(values) if values["type"] == "design" else values
