import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.tune.search.objectives import maximize, minimize
from allo_dse.tune.search.scoring import Scorer
from allo_dse.tune.search.tally import Designs, Tally
from allo_dse.tune.store.log import RunLog, encode_line
from allo_dse.tune.store.record import Record, decode_entry, entry_dict

from ...support.values import present
from ..fakes import add

NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False)
METRICS = st.dictionaries(st.text(max_size=8), NUMBERS | st.text() | st.dictionaries(st.text(max_size=3), NUMBERS))
FLOATS = st.dictionaries(st.sampled_from("abc"), st.floats(allow_nan=False))
ENTRY = st.fixed_dictionaries(
    {
        "type": st.just("design"),
        "number": st.integers(-1, 10**9),
        "key": st.text("0123456789abcdef", min_size=16, max_size=16),
        "status": st.sampled_from(["ok", "infeasible", "violation", "failed"]),
        "genes": st.dictionaries(st.text(max_size=8), st.integers(0, 99)),
        "params": st.dictionaries(st.text(max_size=8), st.integers() | st.text() | st.booleans()),
        "fold": st.recursive(
            st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        ),
        "buffering": st.none() | st.dictionaries(st.text(max_size=8), st.integers(0, 9)),
        "at": st.floats(0, 1e9),
    },
    optional={
        "metrics": METRICS,
        "constraints": FLOATS,
        "violations": st.lists(st.fixed_dictionaries({"constraint": st.text(), "text": st.text()})),
        "values": FLOATS,
        "error": st.text(),
        "seconds": st.floats(0, 1e9),
        "evaluator": st.text(min_size=1),
        "rung": st.integers(1, 9),
        "cached": st.just(True),
        "schedule": st.lists(st.text()),
        "depths": st.dictionaries(st.text(), st.integers(0, 99)),
    },
)


@given(ENTRY)
def test_a_record_comes_back_from_the_log_as_it_was(entry: Any) -> None:
    line = encode_line(entry)[:-1]
    record = decode_entry(line)
    assert isinstance(record, Record)
    assert {name: getattr(record, name) for name in entry.keys() - {"type"}} | {"type": "design"} == entry
    assert decode_entry(encode_line(record.to_dict())[:-1]) == Record.from_dict(entry) == record


def test_what_only_pythons_json_can_say_is_read_too() -> None:
    entry = {"type": "design", "number": 1, "key": "a", "status": "infeasible", "genes": {"g": 1}, "params": {},
             "fold": {}, "buffering": {}, "at": 0.0, "metrics": {"slack": -math.inf}, "constraints": {"c": math.inf},
             "error": "\ud800"}  # fmt: skip
    record = decode_entry(encode_line(entry)[:-1])
    assert isinstance(record, Record)
    assert (record.metrics, record.constraints, record.error, record.genes) == (
        {"slack": -math.inf}, {"c": math.inf}, "\\ud800", {"g": 1}
    )  # fmt: skip


def test_a_record_that_lacks_something_says_what() -> None:
    with pytest.raises(msgspec.ValidationError, match="number"):
        decode_entry(encode_line({"type": "design", "key": "a"})[:-1])


def test_fields_of_a_later_version_are_left_out() -> None:
    entry = {"type": "design", "number": 1, "key": "a", "status": "ok", "genes": {}, "params": {}, "fold": 0,
             "buffering": None, "at": 0.0, "colour": "red"}  # fmt: skip
    assert decode_entry(encode_line(entry)[:-1]) == Record.from_dict(entry)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["ok", "ok", "infeasible", "failed"]))))
def test_counting_earlier_runs_at_once_is_counting_one_by_one(rows: Any) -> None:
    records = [
        Record.from_dict(
            {"number": n, "key": f"{n:04}", "status": status, "genes": {}, "params": {}, "fold": 0, "buffering": 0,
             "at": 0.0, "seconds": 0.5, "values": {"a": float(a), "b": float(b)}, "error": f"error {n}",
             "constraints": {"c": 1.0 if status == "infeasible" else 0.0}}
        )
        for n, (a, b, status) in enumerate(rows)
    ]  # fmt: skip
    values = [tuple(present(r.values).values()) if r.status == "ok" else None for r in records]
    at_once, singly = Tally([minimize("a"), maximize("b")]), Tally([minimize("a"), maximize("b")])
    with TemporaryDirectory() as folder:
        log = RunLog(Path(folder) / "log.jsonl")
        log.append(map(entry_dict, records))
        log.close()
    designs = Designs(log)  # of a file that is gone
    for line, record in enumerate(records):
        designs.add(record, line)
    at_once.restore(designs, Scorer(at_once.objectives, ()))
    for record, found in zip(records, values, strict=True):
        add(singly, record, found)
    assert list(at_once.records) == list(singly.records) == records
    assert at_once.values == singly.values == {r.key: v for r, v in zip(records, values, strict=True) if v}
    assert (at_once.statuses, at_once.infeasible, at_once.last_error) == (
        singly.statuses, singly.infeasible, singly.last_error
    )  # fmt: skip
    assert at_once.front.keys == singly.front.keys
    best = {n: max(v) if n else min(v) for n, v in enumerate(zip(*filter(None, values), strict=True))}
    for n, objective in enumerate(singly.objectives):
        assert at_once.best_value(objective) == singly.best_value(objective) == best.get(n)
    assert at_once.evaluator_seconds == singly.evaluator_seconds
