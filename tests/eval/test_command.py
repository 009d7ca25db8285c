"""`dse.Command`: any command that reads a folder and writes JSON measures designs, however badly it behaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.eval.command import located
from allo_dse.eval.evaluator import needs
from allo_dse.space.design import Design
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import load_studies

from ..support.commands import allo_tune
from ..tune.hazards import own_processes, wait_until

ROOT = Path(__file__).parents[2]
GEMM, EXAMPLE = ROOT / "studies/gemm_npu.py", ROOT / "examples/measure.sh"
QUIET: dict[str, Any] = {"progress": QuietReporter(), "verify": False}


def gemm_study(size: str = "256", **settings: str) -> dse.Study:
    return load_studies(GEMM, {"size": size, **settings})[0]


@pytest.fixture(scope="module")
def design() -> Design:
    return next(gemm_study().space.designs()).design


def script(folder: Path, body: str, name: str = "tool") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def command(folder: Path, body: str, **options: Any) -> dse.Command:
    return dse.Command(f"{script(folder, body)} {{design}}", **options)


def test_the_last_line_of_standard_output_has_the_metrics(tmp_path: Path, design: Design) -> None:
    tool = command(tmp_path, "echo noise; echo '{\"latency_us\": 12.5}'; echo warning >&2")
    found = tool.evaluate(design)
    assert found.latency_us == 12.5
    assert found.evaluator == f"command {tool.version}"


def test_a_file_of_metrics_counts_before_the_last_line(tmp_path: Path, design: Design) -> None:
    tool = command(tmp_path, 'echo \'{"latency_us": 3, "runs": 2}\' > "$1/metrics.json"; echo done')
    assert dict(tool.evaluate(design)).items() >= {"latency_us": 3, "runs": 2}.items()


def test_a_command_that_only_times_serves_studies_with_other_objectives(tmp_path: Path, design: Design) -> None:
    """Cores and memory of GEMM are the mapping's, unless the command has its own."""
    simulated = dse.NpuSimulator().evaluate(design)
    found = command(tmp_path, "echo '{\"latency_us\": 3}'").evaluate(design)
    assert found.pe_count == simulated.pe_count
    assert found.local_memory_bytes == simulated.local_memory_bytes
    own = command(tmp_path, 'echo \'{"latency_us": 3, "pe_count": 99}\'').evaluate(design)
    assert own.pe_count == 99


def test_the_folder_has_the_design(tmp_path: Path, design: Design) -> None:
    tool = command(
        tmp_path, 'ls "$1"; test "$1" = "$ALLO_DSE_DESIGN"; echo "{\\"ok\\": $?}"', directory=tmp_path / "kept"
    )
    assert tool.evaluate(design).ok == 0
    folder = tmp_path / "kept" / design.key
    assert json.loads((folder / "design.json").read_text())["fold"] == json.loads(json.dumps(design.fold.to_dict()))
    assert json.loads((folder / "parameters.json").read_text())["M"] == 256
    made: dict[str, Any] = {}
    exec((folder / "mapping.py").read_text(), made)
    assert made["mapping_primitives"]() == design.mapping_primitives


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("echo no licence >&2; exit 3", dse.CommandError, "failed with exit code 3: no licence"),
        ("echo too many ports; exit 65", dse.DesignRefused, "refuses the design: too many ports"),
        ("kill -SEGV $$", dse.CommandError, "was ended by signal 11"),
        ("echo hello", dse.CommandError, "no JSON object of metrics: hello"),
        ("true", dse.CommandError, "no JSON object of metrics: nothing"),
        ("echo '[1, 2]'", dse.CommandError, "no JSON object"),
        ("echo '{}'", dse.CommandError, "no JSON object"),
        ("head -c 100000 /dev/urandom", dse.CommandError, "no JSON object"),
        ("echo '{\"latency_us\": NaN}'", dse.CommandError, "gives no number for latency_us"),
        ("echo '{\"latency_us\": 1}'; exit 1", dse.CommandError, "failed with exit code 1"),
    ],
)
def test_what_goes_wrong_is_said(
    tmp_path: Path, design: Design, body: str, error: type[Exception], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(error, match=message) as found:
        command(tmp_path, body).evaluate(design)
    assert type(found.value) is error
    assert capsys.readouterr().out.strip() or body in ("true", "kill -SEGV $$")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, design: Design) -> None:
    body = "trap '' TERM; echo started; sleep 301 & setsid sh -c 'sleep 301 & exit'; sleep 301"
    for seconds in (1, 10, 100):  # until it has come so far
        with pytest.raises(dse.CommandError, match=f"took longer than {seconds} s and was ended") as found:
            command(tmp_path, body, seconds=seconds).evaluate(design)
        if ": started" in str(found.value):
            break
    assert ": started" in str(found.value)
    assert not own_processes(b"sleep\x00301\x00")


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path, design: Design) -> None:
    tool = command(tmp_path, "setsid sleep 302 > /dev/null 2>&1 &\necho '{\"x\": 1}'")
    assert tool.evaluate(design).x == 1
    assert not own_processes(b"sleep\x00302\x00")


def test_a_command_that_cannot_be_run_says_what_is_missing(tmp_path: Path) -> None:
    assert "there is no no-such-tool" in str(dse.Command("no-such-tool {design}").unavailable())
    path = script(tmp_path, "true")
    assert dse.Command(f"{path} {{design}}").unavailable() is None
    path.chmod(0o644)
    assert "not executable: chmod +x" in str(dse.Command(f"{path} {{design}}").unavailable())
    with pytest.raises(dse.CommandError, match="not told where the design is"):
        dse.Command("./measure.sh")
    with pytest.raises(dse.CommandError, match="cannot be read"):
        dse.Command("./measure.sh '{design}")


def test_the_version_changes_with_what_is_run(tmp_path: Path) -> None:
    before = command(tmp_path, "echo 1").version
    assert command(tmp_path, "echo 1").version == before
    assert command(tmp_path, "echo 2").version != before
    assert command(tmp_path, "echo 2", version="7").version == "7"


def test_a_command_asks_for_a_process_a_deadline_and_a_resource(tmp_path: Path) -> None:
    asked = needs(command(tmp_path, "true", seconds=5, resource="board"))
    assert asked.isolate
    assert asked.resource == "board"
    assert asked.deadline_s is not None
    assert asked.deadline_s > 5


def test_paths_with_spaces_and_relative_programs(tmp_path: Path, design: Design) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    script(folder, 'test -f "$1/design.json" && echo "{\\"ok\\": 1}"')
    tool = dse.Command("./tool {design}", cwd=folder, directory=folder / "kept here")
    assert tool.evaluate(design).ok == 1


def test_the_failure_of_a_trial_keeps_what_was_printed(tmp_path: Path) -> None:
    study = gemm_study(evaluator=f"{script(tmp_path, 'echo the tool says why; exit 9')} {{design}}")
    result = study.run(trials=2, run_dir=tmp_path / "run", **QUIET)
    assert {r.status for r in result.records} == {"failed"}
    assert all("exit code 9" in str(r.error) for r in result.records)
    logs = list((tmp_path / "run" / "logs").iterdir())
    assert len(logs) == 2
    assert "the tool says why" in logs[0].read_text()


def test_a_study_converges_on_the_numbers_of_its_second_rung(tmp_path: Path) -> None:
    """The command likes many cores, whatever the simulator says: the front has the command's metrics only."""
    shutil.copy(GEMM, tmp_path)
    (tmp_path / "rungs.py").write_text(
        f"""
import allo_dse as dse
from gemm_npu import gemm

rungs = dse.Study(
    "rungs", program=gemm, params={{"M": 256, "N": 256, "K": 256, **{{p: dse.divisors(256, at_least=4) for p in ("Pm", "Pn", "Pk")}}}},
    objectives=[dse.minimize("latency_us")], rungs=[dse.Command("{EXAMPLE} {{design}}", top=6)],
)
"""  # noqa: E501
    )
    study = load_studies(tmp_path / "rungs.py")[0]
    assert study.rungs[0].at_most == 6
    result = study.run(trials=30, seed=1, run_dir=tmp_path / "run", progress=QuietReporter(), verify=False)
    name = f"command {study.make_evaluators()[1].version}"
    higher = [r for r in result.records if r.metrics and r.metrics["evaluator"] == name]
    assert len(higher) == 6
    best = result.best("latency_us")
    assert best.metrics.evaluator == name
    assert best.metrics.latency_us == min(r.metrics["latency_us"] for r in higher if r.metrics)
    assert best.metrics.local_memory_bytes  # of the same rung


def test_the_command_line_takes_an_evaluator_and_resumes_with_it(tmp_path: Path) -> None:
    first = allo_tune(
        GEMM, "--set", "size=256", "--evaluator", "examples/measure.sh {design}", "--no-verify",
        "--run-dir", tmp_path / "run", "--json", "--trials", 4,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["evaluator"].startswith("command ")
    assert info["study_source"]["settings"]["evaluator"] == located(f"{EXAMPLE} {{design}}")
    replayed = allo_tune("replay", tmp_path / "run", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    tool = script(tmp_path, "echo begun > $(dirname $0)/begun; sleep 303")
    process = subprocess.Popen(
        [sys.executable, "-m", "allo_dse", str(GEMM), "--set", "size=256", "--evaluator", f"{tool} {{design}}",
         "--no-verify", "--run-dir", str(tmp_path / "run"), "--quiet"],
        cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    wait_until((tmp_path / "begun").exists)
    for seconds in (1, 30, 30, 30):  # two signals before the first one has been heard are one
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 130, said
    wait_until(lambda: not own_processes(b"sleep\x00303\x00"))
