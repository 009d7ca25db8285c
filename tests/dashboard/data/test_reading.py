"""Reading a log in one go, in pieces, while it grows and design by design gives the same table."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.data import reading
from allo_dse.dashboard.data.reading import Intake, Irregular, columns_of
from allo_dse.dashboard.data.table import RunTable
from allo_dse.tune.results.causes import TEXTS
from allo_dse.tune.store.log import encode_line
from allo_dse.tune.store.record import decode_entry

from ..synthetic import append, design, write_run

NAMES = st.sampled_from(["latency_us", "bram18", "tile", "bound", "status", "seconds", "a", "b"])
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(2**53, 2**70),
    st.floats(),
    st.floats(allow_nan=False, allow_infinity=False),
)
PLAIN = st.one_of(NUMBERS, st.none(), st.booleans(), st.sampled_from(["", "8", "8.0", "auto", "\ud800", "ü"]))
NESTED = st.one_of(PLAIN, st.lists(PLAIN, max_size=2), st.dictionaries(NAMES, PLAIN, max_size=2))
DESCRIBED = st.none() | st.dictionaries(NAMES, NESTED, max_size=3)
KEYS = st.integers(0, 11).map("key{:02}".format)
AXES = st.lists(st.fixed_dictionaries({}, optional={"spatial": NUMBERS, "how": PLAIN}), max_size=2)
FOLDS = st.fixed_dictionaries(
    {"kernels": st.lists(st.fixed_dictionaries({"kernel": NAMES, "axes": AXES, "order": st.lists(st.integers(0, 2))}))}
)
METRICS = st.none() | st.fixed_dictionaries(
    {"latency_us": PLAIN}, optional={"bram18": PLAIN, "bound": NESTED, "a": NESTED, "b": PLAIN}
)
DESIGNS = st.fixed_dictionaries(
    {
        "type": st.just("design"),
        "key": KEYS,
        "status": st.sampled_from(["ok", "ok", "ok", "infeasible", "failed"]),
        "number": st.integers(0, 100),
        "genes": st.just({}),
        "metrics": METRICS,
    },
    optional={
        "at": st.floats(0, 10),
        "seconds": st.floats(0, 1),
        "worker": NAMES,
        "rung": st.integers(0, 2),
        "values": st.none() | st.fixed_dictionaries({"latency_us": st.floats(1, 9), "bram18": st.integers(1, 9)}),
        "constraints": st.none() | st.dictionaries(NAMES, st.integers(0, 1), max_size=2),
        "params": DESCRIBED,
        "fold": st.none() | FOLDS,
        "buffering": DESCRIBED,
        "schedule": st.none() | st.lists(st.sampled_from(["pipeline(a:k, ii=2)", "partition(b, dim=1)"]), max_size=3),
        "depths": DESCRIBED,
    },
)
OTHERS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("verify"), "key": KEYS, "ok": st.booleans(), "message": NAMES, "seconds": st.floats(0, 1)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("values"),
            "key": KEYS,
            "status": st.sampled_from(["ok", "infeasible"]),
            "values": st.dictionaries(NAMES, st.floats(1, 9), max_size=2),
        }
    ),
    st.fixed_dictionaries({"type": st.just("tick"), "at": st.floats(0, 9), "repeats": st.integers(0, 9)}),
    st.fixed_dictionaries(
        {
            "type": st.just("design"),
            "number": st.just(-1),
            "key": KEYS,
            "status": st.just("violation"),
            "genes": st.just({}),
            "at": st.floats(0, 9),
        }
    ),
)
ENTRIES = st.lists(st.one_of(DESIGNS, DESIGNS, OTHERS), max_size=30)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "any", 0)


def content(table: RunTable) -> Any:
    """Everything that views see of a run."""
    rows = np.arange(len(table))
    columns = [
        (name, c.kind, c.numeric, c.numeric and c.integral, c.varies, c.categories, c.values(rows))
        for name, c in table.columns.items()
    ]
    found = [table.keys, table.row_of, table.verified, table.ruled_out, table.ticks, columns, table.version]
    rungs = {key: [(r.rung, r.evaluator, r.where, r.metrics) for r in table.rungs(key)] for key in table.keys}
    return repr([*found, rungs, table.front.tolist(), table.hypervolume.tolist(), table.ok.tolist(), table.knee])


def read(directory: Path, **options: int) -> RunTable:
    table = RunTable(directory, **options)
    table.refresh()
    return table


def one_by_one(entries: Any, *more: Any) -> Any:
    if len(entries) > 1:
        raise Irregular
    return columns_of(entries, *more)


@settings(max_examples=100, deadline=None)
@given(ENTRIES, st.integers(1, 2000), st.data())
def test_reading_in_pieces_of_a_log_that_grows_is_reading_at_once(
    directory: Path, entries: Any, chunk_bytes: Any, data: DataObject
) -> None:
    log = directory / "log.jsonl"
    lines = b"".join(map(encode_line, entries))
    log.write_bytes(lines)
    whole = content(read(directory))
    with patch.object(reading, "columns_of", side_effect=one_by_one):
        assert content(read(directory)) == whole  # design by design
    ends = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=5)))
    log.write_bytes(b"")
    table = RunTable(directory, chunk_bytes=chunk_bytes)
    for start, end in zip([0, *ends], [*ends, len(lines)], strict=True):
        with log.open("ab") as file:
            file.write(lines[start:end])
        table.refresh()
    assert content(table) == whole


@settings(max_examples=200, deadline=None)
@given(st.one_of(DESIGNS, OTHERS))
def test_what_is_decoded_is_what_the_line_says(values: Any) -> None:
    line = encode_line(values)[:-1]
    found, plain = decode_entry(line), json.loads(line)
    for name in ("key", "status", "metrics", "at", "rung"):
        assert name not in plain or repr(getattr(found, name)) == repr(plain[name])
    assert plain.get("values") in (None, getattr(found, "values", None))
    for name in TEXTS if plain["type"] == "design" else ():
        assert repr(json.loads(bytes(getattr(found, f"{name}_json")))) == repr(plain.get(name))


def test_designs_are_taken_by_columns_unless_their_metrics_differ_in_structure(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 100)
    with patch.object(Intake, "one", side_effect=AssertionError("one by one")):
        table = read(path)
    assert len(table) == 100
    with (path / "log.jsonl").open("ab") as log:
        for number, bound in ((100, {"compute": 1}), (101, 0.5), (102, [1]), (103, {"DRAM": 2, "compute": 3})):
            record = design(number).to_dict()
            record["metrics"] = {**(design(0).metrics or {}), "bound": bound}
            log.write(encode_line({**record, "status": "ok"}))
    table.refresh()
    rows = np.arange(100, 104)
    assert table.columns["bound.compute"].values(rows) == [1, None, None, 3]
    assert table.columns["bound"].values(rows) == [None, 0.5, None, None]


def test_an_entry_that_makes_no_sense_ends_the_table_there_and_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 10)
    table = read(path)
    with (path / "log.jsonl").open("ab") as log:
        log.write(encode_line(design(10).to_dict()))
        log.write(encode_line({**design(11).to_dict(), "metrics": "none"}))
        log.write(encode_line(design(12).to_dict()))
    with pytest.raises(StudyError, match="makes no sense here"):
        table.refresh()
    assert len(table) == 11
    append(path, range(20, 25))
    assert not table.refresh()
    (path / "log.jsonl").unlink()
    append(path, range(5))
    assert table.refresh()
    assert len(table) == 5


def test_a_line_longer_than_a_chunk_is_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 3)
    long = {**design(3).to_dict(), "error": "x" * 5000}
    with (path / "log.jsonl").open("ab") as log:
        log.write(encode_line(long) + encode_line(design(4).to_dict()))
    assert len(read(path, chunk_bytes=100)) == 5
