import errno
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.tune.store.log import Log, RunLog, decode_line, encode_line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda n: n != "crc"), JSON, min_size=1))
def test_a_line_gives_back_what_was_written(values: Any) -> None:
    line = encode_line(values)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line[:-1]) == values


def test_any_changed_byte_is_noticed() -> None:
    line = encode_line({"number": 7, "key": "abc"})[:-1]
    for position in range(len(line)):
        for bit in (1, 64):
            damaged = bytearray(line)
            damaged[position] ^= bit
            assert decode_line(bytes(damaged)) is None


def write(path: Path, count: int) -> Any:
    log = RunLog(path)
    log.append({"type": "design", "number": n, "text": "x" * n} for n in range(count))
    log.close()
    return path.read_bytes()


def test_a_log_cut_anywhere_in_its_last_record_loses_that_record_only(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write(path, 4)
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        log = RunLog(path)
        complete = cut == len(whole) - 1  # only the newline is missing
        assert [e["number"] for e in log.entries] == list(range(4 if complete else 3))
        assert bool(log.notes) == (not complete and cut > last)
        log.append([{"type": "design", "number": 9}])
        log.close()
        again = Log(path)
        assert [e["number"] for e in again.entries] == [*range(4 if complete else 3), 9]
        assert again.notes == []


def test_damage_in_the_middle_is_skipped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    data = bytearray(write(path, 3))
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    content = Log(path)
    assert len(content.entries) == 2
    assert "1 damaged record" in content.notes[0]


def test_numpy_numbers_can_be_logged(tmp_path: Path) -> None:
    line = encode_line({"a": np.float64(1.5), "b": np.int64(3), "c": np.bool_(True)})
    assert decode_line(line[:-1]) == {"a": 1.5, "b": 3, "c": True}


def test_a_full_disk_leaves_whole_records_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    log = RunLog(path)
    log.append([{"number": 0}])
    before = path.read_bytes()
    real = os.pwrite

    def nearly_full(fd: Any, data: Any, offset: Any) -> Any:
        if len(data) > 10:
            return real(fd, data[:10], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(StudyError, match="No space left") as caught:
        log.append([{"number": 1}, {"number": 2}])
    assert "free some space" in caught.value.hint
    monkeypatch.undo()
    assert path.read_bytes() == before
    log.append([{"number": 1}])
    log.close()
    assert [e["number"] for e in Log(path).entries] == [0, 1]


def test_a_line_of_two_objects_is_not_two_records() -> None:
    body = b'{"a":1},{"b":2'
    line = body + b',"crc":"%08x"}' % zlib.crc32(body)
    with pytest.raises(ValueError, match="Extra data"):
        decode_line(line)


def test_a_disk_that_is_found_full_only_when_flushed_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    log.append([{"number": 0}])

    def full(fd: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StudyError, match=r"[Qq]uota"):
        log.sync()
    monkeypatch.undo()
    log.close()
