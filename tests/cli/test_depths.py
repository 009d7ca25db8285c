"""`allo-tune depths`: tables, JSON and errors for trace files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.cli.main import main
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put

GOLDEN = """\
 cycles  vs deepest  memory (bits)  BRAM18  LUT   FF  found by run
    603      +0.00%         18,496       1   64  188             1
    620      +2.82%          4,160       0   96  188             5
    812     +34.66%          2,112       0   80  188             4
    908     +50.58%          1,088       0   80   76             3
    997     +65.34%            128       0   64  136             2
    604      +0.17%         19,456       1   80  128      as built
18,496 bits lose no cycle, found by run 1 of 6; no depths without loss take less
its depths: 200, but last 1"""


@pytest.fixture
def depths(monkeypatch: Any, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["allo-tune", "depths", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), str(captured.out), str(captured.err)

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two hundred tokens at once for a reader that takes three cycles for each, while the writer has more to do."""
    built = Trace.build(
        {"burst": 256, "last": 16},
        {
            "write": [Loop(200, ops=[Put("burst")]), Loop(400), Loop(1, ops=[Put("last")])],
            "read": [Loop(200, 3, 1, ops=[Get("burst")]), Loop(1, ops=[Get("last")])],
        },
    )
    built.save(tmp_path / "burst.npz")
    return tmp_path / "burst.npz"


def test_a_table_and_what_it_proves(trace: Path, depths: Any) -> None:
    code, out, _ = depths(trace)
    assert code == 0
    assert "\n".join(line.rstrip() for line in out.splitlines()) == GOLDEN


def test_shallow_streams_may_be_faster_than_the_deepest(tmp_path: Path, depths: Any) -> None:
    """They were called slower by a negative share."""
    copied = {"write": [Loop(20, ops=[Put("a")])], "read": [Loop(20, ops=[Get("a")])]}
    Trace.build({"a": 16}, copied).save(tmp_path / "copied.npz")
    head, shallow, built, *_ = depths(tmp_path / "copied.npz")[1].splitlines()
    assert head.split()[:3] == ["cycles", "vs", "deepest"]
    assert [row.split()[:2] for row in (shallow, built)] == [["20", "-4.76%"], ["21", "+0.00%"]]


def test_streams_may_be_named_like_markup(tmp_path: Path, depths: Any) -> None:
    names = ["c", "a[/b]"]
    writes, reads = ([Loop(20, ops=[use(name)]) for name in order] for use, order in ((Put, names), (Get, names[::-1])))
    Trace.build(dict.fromkeys(names, 16), {"write": writes, "read": reads}).save(tmp_path / "named.npz")
    assert "its depths: 20, but a[/b] 2" in depths(tmp_path / "named.npz")[1]


def test_json_has_the_depths_of_every_point(trace: Path, depths: Any) -> None:
    found = json.loads(depths(trace, "--bits", "8", "--bits", "burst=64", "--device", "zcu102", "--json")[1])
    loaded = Trace.load(trace)
    for point in (*found["points"], found["lossless"], found["built"]):
        assert loaded.replay(point["depths"]).cycles == point["cycles"]
    assert found["least_depths"]["burst"] > 16
    assert found["built"]["run"] == 0
    assert found["lossless"]["memory_bits"] >= found["at_least_bits"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bits", "wide"], "--bits wide: 'wide' is no width in bits"),
        (["--bits", "burst=0"], "--bits burst=0: '0' is no width in bits"),
        (["--bits", "brst=8"], "did you mean burst?"),
        (["--bits", "9999999999"], "bits of stream burst: 9999999999 are more than u280 has room for"),
        (["--device", "npu1_4col"], "npu1_4col is no FPGA"),
        (["nothing.npz"], "there is no trace nothing.npz"),
        (["--run", "runs/gemm"], "--run and --study are about designs"),
    ],
)
def test_mistakes_are_named(trace: Path, depths: Any, arguments: list[str], message: str) -> None:
    code, _, err = depths(trace, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_trace_without_streams_has_no_depths(tmp_path: Path, depths: Any) -> None:
    Trace.build({}, {"alone": [Loop(3)]}).save(tmp_path / "alone.npz")
    code, _, err = depths(tmp_path / "alone.npz")
    assert (code, err.strip()) == (2, "error: trace 'trace' has no streams whose depths could be searched for")


def test_a_design_has_its_own_widths_and_device(depths: Any) -> None:
    code, _, err = depths("41", "--device", "zcu102")
    assert (code, "--bits and --device are about traces" in err) == (2, True)
