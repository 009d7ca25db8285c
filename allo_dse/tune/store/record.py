"""Schema of results: an evaluator's measurement of a design, and every kind of line in a log.

A `Measurement` is made where a design is evaluated. A `Record` is a line of the log: a measurement with its design and
the study's verdict. Readers of a log get these types.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from allo_dse.common.records import JsonObject
from allo_dse.space.params import plain_value

from .log import decode_line, json_bytes
from .run_info import TEXT_LENGTH, valid, valid_text

if TYPE_CHECKING:
    from allo_dse.space.space import Candidate

Status = Literal["ok", "infeasible", "violation", "failed"]
NOTHING = msgspec.Raw(b"null")


class Measurement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Result of one evaluator for one design.

    Attributes:
        number: number of the proposal, -1 if there is none; unique within a run together with the rung.
        rung: position of the evaluator among the study's evaluators.
        evaluator: its name and version.
        worker: worker that evaluated the design.
        metrics: measured metrics, as the log keeps them; None if the evaluation failed.
        error: the reason of a failure.
        seconds: time spent in the evaluator.
        cached: whether the result was taken from an earlier run.
        printed: output of an isolated evaluator before it failed; the log names a file with it.
    """

    number: int = -1
    rung: int = 0
    evaluator: str = ""
    worker: str = ""
    metrics: JsonObject | None = None
    error: str | None = None
    seconds: float = 0.0
    cached: bool = False
    printed: str = ""

    def __post_init__(self) -> None:
        error = self.error
        if error is not None and (len(error) > TEXT_LENGTH or not error.isascii()):
            msgspec.structs.force_setattr(self, "error", valid_text(error))


class Record(Measurement, frozen=True, kw_only=True, gc=False, tag="design", tag_field="type"):
    """Outcome of one proposed design, at one rung.

    A run holds one per trial. Only a few need the description of their design. It stays JSON text, which takes less
    memory and no time to read, until it is used.

    Attributes:
        number: number of the proposal; -1 for violations, which are screened out before they become proposals.
        key: the design's canonical hash.
        status: "ok"; "infeasible" (evaluated, but a constraint of the study does not hold); "violation" (breaks a
            device limit, never evaluated); "failed" (the evaluator reported no metrics).
        genes_json, params_json, fold_json, buffering_json: JSON text of the properties without the suffix.
        schedule_json, depths_json: the same, for the designs that have them.
        at: seconds since the study began, without pauses between runs.
        values: the objectives' values, if the metrics allow them.
        constraints: violation of each constraint of the study; 0 if it holds.
        violations: broken limits, as {"constraint", "text"}.
        log: file of the run directory with the output of an evaluator that failed.
        rungs: measurements of a promoted design, the cheapest rung first. `metrics` then merges all of them, and the
            highest rung takes precedence. Never in the log, which has a line per rung.
    """

    number: int
    key: str
    status: Status
    genes_json: msgspec.Raw = msgspec.field(name="genes")
    params_json: msgspec.Raw = msgspec.field(name="params", default=NOTHING)
    fold_json: msgspec.Raw = msgspec.field(name="fold", default=NOTHING)
    buffering_json: msgspec.Raw = msgspec.field(name="buffering", default=NOTHING)
    schedule_json: msgspec.Raw = msgspec.field(name="schedule", default=NOTHING)
    depths_json: msgspec.Raw = msgspec.field(name="depths", default=NOTHING)
    at: float = 0.0
    values: dict[str, float] | None = None
    constraints: dict[str, float] | None = None
    violations: list[dict[str, str]] | None = None
    log: str | None = None
    rungs: tuple[Measurement, ...] = ()

    @property
    def evaluated(self) -> bool:
        """True if it counts as a trial."""
        return self.status != "violation"

    @property
    def measurement(self) -> Measurement:
        """Result of the evaluator, without the design."""
        return Measurement(**{name: getattr(self, name) for name in Measurement.__struct_fields__})

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """One per rung that the design has reached, the cheapest first."""
        return self.rungs or (self.measurement,)

    @property
    def measured_by(self) -> str:
        """Evaluator of the highest rung that has measured the design; "" if none has."""
        return next((m.evaluator for m in reversed(self.rungs or (self,)) if m.metrics is not None), "")

    @property
    def genes(self) -> dict[str, int]:
        """Genes from which `Space.decode_genes` rebuilds the design."""
        genes: dict[str, int] = json_value(self.genes_json)
        return genes

    @property
    def params(self) -> JsonObject:
        """The program's parameters, for readers."""
        params: JsonObject = json_value(self.params_json) or {}
        return params

    @property
    def fold(self) -> Any:
        """Fold of the program, for readers."""
        return json_value(self.fold_json)

    @property
    def buffering(self) -> Any:
        """Buffering of the ports, for readers."""
        return json_value(self.buffering_json)

    @property
    def schedule(self) -> list[str] | None:
        """Directives, as text."""
        schedule: list[str] | None = json_value(self.schedule_json)
        return schedule

    @property
    def depths(self) -> dict[str, int] | None:
        """Stream depths that are not as declared."""
        depths: dict[str, int] | None = json_value(self.depths_json)
        return depths

    def to_dict(self) -> JsonObject:
        """Return the record as the log stores it, without fields that have their default."""
        values = ((name, getattr(self, field)) for field, name, _ in _RECORD)
        stored = {name: value for (*_, default), (name, value) in zip(_RECORD, values, strict=True) if value != default}
        return {"type": "design", **stored}

    @classmethod
    def from_dict(cls, values: JsonObject) -> Record:
        """The record of an entry of a log."""
        return cls(**_fields_of(cls, values))


VERDICTS = {
    "yes": "verified",
    "wrong": "wrong numbers",
    "deadlock": "deadlock",
    "not run": "could not be run",
}
"""Results of a verification in words, by `Verification.verdict`."""


class Verification(msgspec.Struct, frozen=True, gc=False, tag="verify", tag_field="type"):
    """Result of running a design and comparing its numbers.

    Attributes:
        kind: why there are no numbers: "deadlock" or "not run".
        error: largest rounding error, as a share of the largest value; None if nothing is rounded.
        tolerance: the error that is allowed there.
        place: its element.
        against: digest of the functions that decided; empty in old logs.
    """

    ok: bool
    message: str
    seconds: float
    key: str = ""
    kind: str = ""
    error: float | None = None
    tolerance: float | None = None
    place: str = ""
    against: str = ""

    @property
    def verdict(self) -> str:
        """A name in `VERDICTS`."""
        return "yes" if self.ok else self.kind or ("deadlock" if self.message.startswith("deadlock") else "wrong")

    @property
    def words(self) -> str:
        return VERDICTS.get(self.verdict, self.verdict)

    def explain(self) -> str:
        """The verdict in words with the details."""
        return f"{self.words}: {self.message}".removesuffix(": ")

    def __str__(self) -> str:
        """The verdict with the rounding error, for a column of a table."""
        if self.error is None:
            return self.verdict
        return f"{self.verdict}, {self.error:.2g} of {self.tolerance:.2g} at {self.place}"


class PlacementNote(msgspec.Struct, frozen=True, gc=False, tag="place", tag_field="type"):
    """Result of placing and routing a design on the device's array.

    Attributes:
        reason: the limits that forbid it, or the placement if there is one.
    """

    ok: bool
    reason: str
    seconds: float
    key: str = ""


class Revaluation(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="values", tag_field="type"):
    """New verdict on a recorded design after objectives or constraints were changed between two runs."""

    key: str
    status: Status
    values: dict[str, float]


class Withdrawal(msgspec.Struct, frozen=True, gc=False, tag="withdrawal", tag_field="type"):
    """A measurement contradicted a bound: bounds of that evaluator do not count from now on."""

    evaluator: str
    key: str
    reason: str


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="tick", tag_field="type"):
    """Running totals of a run: repeated, illegal and invalid proposals, and cached results.

    Attributes:
        bounds: bounds over the whole space by objective, as far as they are known.
    """

    at: float
    repeats: int = 0
    illegal: int = 0
    invalid: int = 0
    cache_hits: int = 0
    bounds: dict[str, float] = {}


class Session(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="session", tag_field="type"):
    """The beginning of a run in a log, and how its proposals are made.

    Attributes:
        named: whether the sampler can be created by its name.
        done: number of proposals of earlier runs.
        strict: whether proposals depend only on the seed and earlier results.
        trials: number of designs to evaluate in the study in all; None for no limit.
        sizes: sizes of the sampler that differ from its defaults.
        enqueued: genes of designs that are evaluated before the first proposal.
    """

    sampler: str
    named: bool
    seed: int
    done: int
    strict: bool
    trials: int | None = None
    sizes: dict[str, int] = {}
    enqueued: list[dict[str, int]] = []


Entry = Record | Verification | PlacementNote | Revaluation | Tick | Session | Withdrawal
"""A line of a log."""

_KINDS: dict[str, type[msgspec.Struct]] = {str(kind.__struct_config__.tag): kind for kind in Entry.__args__}
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ALWAYS = ("at", "seconds")  # written even if 0
_NEVER = ("printed", "rungs")
_RECORD = tuple(
    (field.name, field.encode_name, msgspec.NODEFAULT if field.name in _ALWAYS else field.default)
    for field in msgspec.structs.fields(Record)
    if field.name not in _NEVER
)


class _Kind(msgspec.Struct):
    type: str


def _fields_of(kind: type[msgspec.Struct], values: JsonObject) -> JsonObject:
    """Return a line's values by field, with those kept as JSON text encoded again."""
    named = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    found = {field: values[name] for name, field in named if name in values}
    return {field: json_text(value) if field.endswith("_json") else value for field, value in found.items()}


def json_text(value: Any) -> msgspec.Raw:
    """Return a value as the JSON text that a record keeps."""
    return msgspec.Raw(json_bytes(value))


def json_value(text: msgspec.Raw) -> Any:
    """The inverse of `json_text`."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:  # infinities, which only Python's JSON allows
        return json.loads(bytes(text))


def json_values(texts: Sequence[msgspec.Raw]) -> list[Any]:
    """The values of many texts, sooner than one by one."""
    try:
        found: list[Any] = msgspec.json.decode(b"[%b]" % b",".join(texts))
        return found
    except msgspec.DecodeError:
        return list(map(json_value, texts))


def entry_dict(entry: Entry) -> JsonObject:
    """Return an entry as the log stores it."""
    if isinstance(entry, Record):
        return entry.to_dict()
    return {"type": entry.__struct_config__.tag, **msgspec.structs.asdict(entry)}


def decode_entry(line: bytes) -> Entry | None:
    """An intact line of a log; None for a kind of entry that a later version writes.

    Raises:
        ValueError, TypeError: when it is of a known kind, and lacks something or has something else in its place.
    """
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        if msgspec.json.decode(line, type=_Kind).type in _KINDS:
            raise
        return None
    except msgspec.DecodeError:  # infinities and lone surrogates, which only Python's JSON allows
        values = valid(decode_line(line) or {})
        kind = _KINDS.get(values["type"])
        return cast(Entry, kind(**_fields_of(kind, values))) if kind else None


def record_of(candidate: Candidate, found: Measurement, *, at: float = 0.0, log: str | None = None) -> Record:
    """Return the record of a measurement, without objective values.

    Args:
        at: seconds since the study began.
        log: file with the output of the evaluator.
    """
    fields = {**msgspec.structs.asdict(found), "printed": "", "seconds": round(found.seconds, 6)}
    status: Status = "failed" if found.metrics is None else "ok"
    return Record(**fields, **described(candidate), status=status, at=at, log=log)


def described(candidate: Candidate) -> JsonObject:
    """Return the fields of a record that identify and describe its design."""
    design = candidate.design
    return {
        "key": candidate.key,
        "genes_json": json_text(candidate.genes),
        # Numbers, text and truth values as they are, the rest by name.
        "params_json": json_text(
            {
                name: value if isinstance(value, bool | int | float | str) or value is None else plain_value(value)
                for name, value in candidate.params.items()
            }
        ),
        "fold_json": json_text(design.fold.to_dict()),
        "buffering_json": json_text(design.buffering.to_dict()),
        "schedule_json": json_text([str(directive) for directive in design.schedule] or None),
        "depths_json": json_text(dict(design.depths) or None),
    }
