"""`allo-tune verify` on a run of a real program."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.cli import main
from allo_dse.tune.study import load_studies

STUDY = """
import allo_dse as dse
from tests.compiler.samples import gemm

def small(M=16, N=16, K=16, Pm=2, Pn=2, Pk=2):
    return gemm(M, N, K, Pm, Pn, Pk)

def study() -> dse.Study:
    params = {"Pk": dse.choices([1, 2])}
    return dse.Study("gemm", program=small, params=params, device="npu1_4col", objectives=[dse.minimize("latency_us")])
"""


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Callable[..., str]:
    (tmp_path / "study.py").write_text(STUDY)
    (study,) = load_studies(tmp_path / "study.py")
    study.run(4, run_dir=tmp_path / "runs" / "gemm", progress="quiet", seed=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["allo-tune", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        return str(captured.err if code else captured.out)

    return call


def test_the_front_is_compared_with_its_program(tune: Callable[..., str]) -> None:
    found = json.loads(tune("verify", "--json"))
    assert found
    assert all(one["equal"] and "error probability below" in one["text"] for one in found)
    assert f"{found[0]['key']} equal: at " in tune("verify", found[0]["key"])


def test_an_exported_folder_is_compared_with_its_program(tune: Callable[..., str]) -> None:
    (found,) = json.loads(tune("verify", "runs/gemm/best/latency_us", "--json"))
    assert found["equal"]
    assert found["key"] == json.loads(Path("runs/gemm/best/latency_us/design.json").read_text())["key"]


def test_an_exported_folder_is_of_the_run_that_it_is_in(tune: Callable[..., str]) -> None:
    (study,) = load_studies(Path("study.py"))
    study.run(1, run_dir=Path("runs/newer"), progress="quiet", seed=2, verify=False)
    (found,) = json.loads(tune("verify", "runs/gemm/best/latency_us", "--json"))
    assert found["equal"]


def test_a_run_compares_its_front_for_all_inputs_at_full_size(tune: Callable[..., str]) -> None:
    entries = map(json.loads, Path("runs/gemm/log.jsonl").read_text().splitlines())
    messages = [entry["message"] for entry in entries if entry.get("type") == "verify"]
    assert messages
    assert all("; for all inputs: equal at " in said and "(full size: 16x16" in said for said in messages)


def test_what_is_wrong_with_an_exported_folder_is_said(tune: Callable[..., str]) -> None:
    folder = "runs/gemm/best/latency_us"
    for text, kind in (("def (", "SyntaxError"), ("import nothing_like_it", "ModuleNotFoundError")):
        Path(folder, "mapping.py").write_text(text)
        assert f"error: {folder}/mapping.py cannot be run: {kind}" in tune("verify", folder, code=2)
    Path(folder, "mapping.py").unlink()
    assert f"error: {folder} has no mapping.py" in tune("verify", folder, code=2)
    for text in ("{", "{}", "[]"):
        Path(folder, "design.json").write_text(text)
        assert f"error: {folder}/design.json is damaged" in tune("verify", folder, code=2)
