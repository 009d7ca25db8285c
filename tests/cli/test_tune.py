"""The command line as users meet it: in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from allo_dse.tune.store.log import Log

from ..support import commands

ROOT = Path(__file__).parent.parent.parent
STUDY = """
import time
from pathlib import Path
from tests.tune.fakes import FakeEvaluator, fake_study
from allo_dse.tune.study import Study

class Slow(FakeEvaluator):
    def evaluate(self, design):
        Path("evaluating").touch()
        time.sleep({sleep})
        return super().evaluate(design)

def study(salt: str = "") -> Study:
    return fake_study("fake", salt=salt, evaluator=Slow)
"""


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Any]:
    def write(sleep: Any = 0.0) -> Path:
        (tmp_path / "study.py").write_text(STUDY.format(sleep=sleep))
        return tmp_path

    return write


def command(*arguments: Path | int | str) -> Any:
    return [sys.executable, "-c", "from allo_dse.cli import main; main()", *map(str, arguments)]


def environment() -> Any:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "140", "NO_COLOR": "1", "TERM": "dumb"}


def allo_tune(cwd: Any, *arguments: Path | int | str) -> CompletedProcess[str]:
    return commands.allo_tune(*arguments, cwd=cwd, environment=environment())


def started(cwd: Path, *arguments: Path | int | str, **limits: int) -> AbstractContextManager[commands.Started]:
    return commands.started(*arguments, cwd=cwd, environment=environment(), **limits)


def evaluated(run_dir: Any) -> Any:
    entries = Log(run_dir / "log.jsonl").entries
    return [e["key"] for e in entries if e["type"] == "design" and e["status"] != "violation"]


def wait_for(condition: Any, seconds: float = 1000.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("nothing happened")


def test_a_study_from_the_command_line_and_again(study: Any) -> None:
    folder = study()
    first = allo_tune(folder, "study.py", "--trials", 40)
    assert first.returncode == 0, first.stderr
    assert "Pareto front" in first.stdout
    assert "runs/fake/pareto.csv" in first.stdout
    assert (folder / "runs/fake/best/latency_us/mapping.py").exists()
    second = allo_tune(folder, "study.py", "--trials", 40, "--json")
    events = [json.loads(line) for line in second.stdout.splitlines()]
    assert "resuming" in events[0]["text"]
    assert events[-1]["event"] == "result"
    assert events[-1]["trials"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "error: there is no file nothing.py"),
        (["study.py", "--set", "sal=3"], "did you mean salt?"),
        (["study.py", "--set", "salt"], "expected name=value"),
        (["study.py", "--time", "soon"], "'soon' is not a duration"),
        (["study.py", "--sampler", "magic"], "unknown sampler 'magic'"),
        (["study.py", "--trials", "many"], "--trials"),
        (["study.py", "--trails", "3"], "No such option"),
        (["--trials", "3"], "Missing argument"),
        (["status", "runs/x"], "is not a run directory"),
        (["best"], "there is no run in runs/"),
    ],
)
def test_user_errors_have_no_traceback_and_exit_with_2(study: Any, arguments: Any, message: str) -> None:
    found = allo_tune(study(), *arguments)
    assert found.returncode == 2
    assert message in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_what_evaluators_print_does_not_mix_into_json(study: Any) -> None:
    folder = study()
    file = folder / "study.py"
    file.write_text(
        file.read_text()
        + "\nimport os\nfrom tests.tune.fakes import FakeEvaluator\nprint('hello from the file')"
        + "\nevaluate = FakeEvaluator.evaluate"
        + "\ndef chatty(self, design):\n    print('chatty')\n    os.system('echo a tool')"
        + "\n    return evaluate(self, design)"
        + "\nFakeEvaluator.evaluate = chatty\n"
    )
    found = allo_tune(folder, "study.py", "--trials", 5, "--json")
    assert [json.loads(line) for line in found.stdout.splitlines()][-1]["event"] == "result"
    for text in ("hello from the file", "chatty", "a tool"):
        assert text in found.stderr


def test_errors_are_json_too(study: Any) -> None:
    found = allo_tune(study(), "nothing.py", "--json")
    assert found.returncode == 2
    assert json.loads(found.stdout)["event"] == "error"


WRONG_PROGRAM = """
import allo
import allo.dataflow as df
from allo.ir.types import int32
import allo_dse as dse

@df.region()
def top(A: int32[8], B: int32[8]):
    @df.kernel(mapping=[1], args=[A, B])
    def copy(a: int32[8], b: int32[8]):
        for i in range(8):
            b[i] = a[i] + nothing

study = dse.Study("wrong", program=top, objectives=[dse.minimize("latency_us")])
"""


def test_errors_in_a_program_arrive_whole(study: Any) -> None:
    folder = study()
    (folder / "study.py").write_text(WRONG_PROGRAM)
    found = allo_tune(folder, "study.py", "--json")
    assert found.returncode == 2
    assert "study.py:12:27: error: " in found.stderr
    assert "   12 |             b[i] = a[i] + nothing\n      |                           ^~~~~~~" in found.stderr
    told = json.loads(found.stdout)
    assert (told["line"], told["column"], told["width"]) == (12, 27, 7)
    assert told["file"].endswith("study.py")
    assert told["source_line"].endswith("+ nothing")


def test_bugs_keep_their_traceback(study: Any) -> None:
    folder = study()
    (folder / "study.py").write_text(
        STUDY.format(sleep=0) + "\nfrom allo_dse.tune.run import session\nsession.Driver.run = lambda self: 1 / 0\n"
    )
    found = allo_tune(folder, "study.py", "--trials", 5)
    assert "ZeroDivisionError" in found.stderr
    assert "Traceback" in found.stderr
    assert found.returncode == 1


def test_help_and_version() -> None:
    assert re.fullmatch(r"allo-tune \d+\.\d+\.\d+\n", allo_tune(ROOT, "--version").stdout)
    text = allo_tune(ROOT, "--help").stdout
    for word in ("Examples", "studies/gemm_npu.py", "--trials", "--set", "Ctrl-C"):
        assert word in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_everything_and_says_how_to_go_on(study: Any, number: Any, code: int) -> None:
    folder = study(sleep=0.01)
    run_dir = folder / "runs/fake"
    with started(folder, "study.py", "--trials", 100000) as run:
        wait_for(lambda: (run_dir / "log.jsonl").exists() and len(evaluated(run_dir)) > 5)
        os.kill(run.pid, number)
        found = run.end()
    assert found.returncode == code, found.stderr
    assert "everything is kept" in found.stdout
    assert "allo-tune study.py --trials 100000" in found.stdout
    assert (run_dir / "pareto.csv").exists()
    before = evaluated(run_dir)
    assert len(before) == len(set(before))
    assert allo_tune(folder, "study.py", "--trials", len(before) + 10, "--no-verify").returncode == 0
    assert evaluated(run_dir)[: len(before)] == before
    assert len(set(evaluated(run_dir))) == len(before) + 10


ENDLESS = """
import time
from allo_dse.tune.run import session
from allo_dse.tune.show import output
from tests.tune.fakes import FakeEvaluator, fake_study

def for_ever(*given, **named):
    open("begun", "w").close()
    while True:
        time.sleep(0.001)  # as good as computing: a second passes before it is left

def once(does):
    # What takes for ever the first time.
    calls = iter([for_ever])
    return lambda *given: next(calls, does)(*given)

class Endless(FakeEvaluator):
    evaluate = for_ever

def study(step="evaluate"):
    found = fake_study("fake", evaluator=Endless if step == "evaluate" else FakeEvaluator)
    if step == "check":
        found.space.decode = once(found.space.decode)
    elif step == "verify":
        found.verify = for_ever
    elif step == "export":
        session.write_best = for_ever
    elif step == "begin":
        session._begun = for_ever
    return found
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step", ["begin", "check", "evaluate", "verify", "export"])
def test_a_step_that_never_ends_is_left(tmp_path: Path, step: str, number: Any, code: int) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    with started(tmp_path, "endless.py", "--trials", 5, "--set", f"step={step}") as run:
        wait_for(lambda: (tmp_path / "begun").exists())
        os.kill(run.pid, number)
        found = run.end()  # it would never end
    assert found.returncode == code, found.stderr
    assert "kept" in found.stdout + found.stderr
    assert "Traceback" not in found.stderr


def test_ctrl_c_again_and_again_keeps_what_there_is(study: Any) -> None:
    folder = study(sleep=3600)  # nobody waits for an evaluation
    process = subprocess.Popen(
        command("study.py", "--trials", 50),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((folder / "evaluating").exists)
    for seconds in (1, 30, 30, 30):  # two signals before the first one has been heard are one
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "kept" in out + err
    assert "Traceback" not in err


def test_kill_9_loses_at_most_what_is_in_flight(study: Any) -> None:
    folder = study(sleep=0.005)
    run_dir = folder / "runs/fake"
    with started(folder, "study.py", "--trials", 100000) as run:
        wait_for(lambda: (run_dir / "log.jsonl").exists() and len(evaluated(run_dir)) > 20)
        os.kill(run.pid, signal.SIGKILL)
        assert run.end().returncode == -signal.SIGKILL
    before = evaluated(run_dir)
    found = allo_tune(folder, "study.py", "--trials", len(before) + 20, "--no-verify")
    assert found.returncode == 0, found.stderr
    whole = folder / "whole"
    assert (
        allo_tune(folder, "study.py", "--trials", len(before) + 20, "--no-verify", "--run-dir", whole).returncode == 0
    )
    assert evaluated(run_dir) == evaluated(whole)


def test_a_full_disk_ends_the_run_with_what_to_do(study: Any) -> None:
    folder = study()
    with started(folder, "study.py", "--trials", 5000, "--no-verify", file_bytes=40 << 10) as run:
        found = run.end()
    assert found.returncode == 2, found.stderr
    assert "cannot write" in found.stderr
    assert "free some space" in found.stderr
    assert "Traceback" not in found.stderr
    kept = evaluated(folder / "runs/fake")
    assert kept
    assert allo_tune(folder, "study.py", "--trials", len(kept) + 5, "--no-verify").returncode == 0


def test_importing_the_package_and_asking_for_help_stay_fast() -> None:
    code = "import sys, allo_dse; print(*(m for m in ('optuna', 'pandas', 'ray', 'numpy') if m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_a_full_disk_leaves_a_report_as_it_was(study: Any) -> None:
    folder = study()
    assert allo_tune(folder, "study.py", "--trials", 6, "--run-dir", "run", "--no-verify").returncode == 0
    (folder / "report.html").write_text("before")
    names = {path.name for path in folder.iterdir()}
    with started(folder, "report", "run", file_bytes=40 << 10) as command:
        ended = command.end()
    assert (ended.returncode, "cannot write report.html: File too large" in ended.stderr) == (2, True), ended.stderr
    assert (folder / "report.html").read_text() == "before"
    assert {path.name for path in folder.iterdir()} == names


def test_lint_names_the_line_and_what_to_write(tmp_path: Path) -> None:
    done = allo_tune(tmp_path, "lint", ROOT / "studies" / "gemm_two_level_npu.py")
    assert done.returncode == 1
    source = (ROOT / "studies" / "gemm_two_level_npu.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "k * inner : (k + 1) * inner]" in text)
    assert f"gemm_two_level_npu.py:{line}:" in done.stdout
    assert "with allo.meta_for(n) as i" in done.stdout


def test_lint_of_a_program_that_allo_builds(tmp_path: Path) -> None:
    done = allo_tune(tmp_path, "lint", ROOT / "studies" / "vector_add_npu.py")
    assert (done.returncode, done.stdout) == (0, "vector_add_npu: nothing that Allo does not build\n")
