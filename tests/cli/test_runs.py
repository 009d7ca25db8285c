"""Commands on runs: in this process, on a run made once."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.cli import main
from allo_dse.tune.earlier_runs import replay_run
from allo_dse.tune.store.log import Log, encode_line
from allo_dse.tune.store.rundir import RunDirectory, running
from allo_dse.tune.study import load_studies

from ..tune.fakes import FakeEvaluator, fake_study

STUDY = """
from tests.tune.fakes import FakeEvaluator, fake_study
from allo_dse.tune.study import Study

class Priced(FakeEvaluator):
    def evaluate(self, design):
        if int(design.key, 16) % 10 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)

def study(salt: str = "") -> Study:
    return fake_study("fake", salt=salt, evaluator=Priced)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "study.py").write_text(STUDY)
    (study,) = load_studies(folder / "study.py")
    result = study.run(60, run_dir=folder / "runs" / "fake", progress="quiet", seed=3)
    return folder, result


@pytest.fixture
def tune(made: Any, monkeypatch: Any, capsys: Any) -> Callable[..., Any]:
    folder, _ = made
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: Path | str, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["allo-tune", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        return captured.out if code != 2 else captured.err

    return call


def test_status_counts_what_the_log_holds(tune: Any, made: Any) -> None:
    folder, result = made
    facts = json.loads(tune("status", "--json"))
    entries = Log(folder / "runs/fake/log.jsonl").entries
    statuses = [e["status"] for e in entries if e["type"] == "design"]
    assert facts["trials"] == 60
    assert facts["failed"] == statuses.count("failed") > 0
    assert facts["ruled_out"] == statuses.count("violation")
    assert facts["reasons"]["RuntimeError: no licence"] == facts["failed"]
    assert facts["front_size"] == len(result.front)
    assert not facts["running"]
    assert "not running" in tune("status")


def test_best_and_pareto_agree_with_the_result(tune: Any, made: Any) -> None:
    _, result = made
    best = json.loads(tune("best", "--json"))
    for name, found in best.items():
        assert found["key"] == result.best(name).key
        assert found["values"] == result.best(name).values
    front = json.loads(tune("pareto", "--json"))["front"]
    assert [d["key"] for d in front] == [d.key for d in result.front]
    rows = tune("pareto", "runs/fake", "--csv").splitlines()
    assert len(rows) == len(result.front) + 1
    assert rows[0].startswith("latency_us,pe_count,local_memory_bytes,size,Pm")
    assert "knee" in tune("pareto")
    assert len(json.loads(tune("best", "--objective", "pe_count", "--json"))) == 1


def test_designs_are_found_by_number_key_and_beginning(tune: Any, made: Any) -> None:
    _, result = made
    record = next(r for r in result.records if r.status == "ok")
    for text in (str(record.number), f"#{record.number}", record.key, record.key[:7]):
        assert json.loads(tune("show", text, "--json"))["key"] == record.key
    failed = next(r for r in result.records if r.status == "failed")
    assert "no licence" in tune("show", failed.key)


def test_every_command_takes_the_run_in_the_same_ways(tune: Any, made: Any) -> None:
    _, result = made
    first, second = (design.key for design in result.front[:2])
    for words in (["status"], ["best"], ["pareto"], ["show", first], ["replay", first], ["compare", first, second]):
        newest = json.loads(tune(*words, "--json"))
        newest.pop("last_result_seconds_ago", None)
        for run in (["runs/fake"], ["fake"], ["--run", "runs/fake"], ["-r", "fake"]):
            found = json.loads(tune(*words, *run, "--json"))
            found.pop("last_result_seconds_ago", None)
            assert found == newest


def test_replay_gives_the_recorded_metrics_again(tune: Any, made: Any) -> None:
    _, result = made
    found = json.loads(tune("replay", result.best().key, "--verify", "--json"))
    assert found["same"]
    assert found["verified"]
    assert found["metrics"]["latency_us"]["now"] == found["metrics"]["latency_us"]["recorded"]
    failed = next(r for r in result.records if r.status == "failed")
    assert "the same" in tune("replay", failed.number)


def test_replay_notices_a_changed_evaluator(tune: Any, made: Any) -> None:
    folder, result = made
    changed = folder / "changed.py"
    changed.write_text(STUDY + "\nPriced.evaluate = lambda self, d: type('M', (dict,), {})(latency_us=1)")
    assert "latency_us" in tune("replay", result.best().key, "--study", changed, code=1)


def test_the_log_replays_its_run(tune: Any, made: Any) -> None:
    folder, _ = made
    entries = [e for e in Log(folder / "runs/fake/log.jsonl").entries if e["type"] == "design"]
    found = json.loads(tune("replay", "--json"))
    assert found["records"] == found["replayed"] == found["same"] == len(entries) > 60
    assert (found["different"], found["skipped"], found["stopped"]) == ([], {}, "")
    assert found["proposals"]["proposed"] == 60
    assert found["proposals"]["difference"] == ""
    said = tune("replay", "runs/fake")
    assert "the same" in said
    assert "60 proposed again in the same order" in said
    tune("replay", "runs/fake", "--verify", code=2)


def test_replaying_a_run_says_which_designs_differ(tune: Any, made: Any) -> None:
    folder, result = made
    changed = folder / "slower.py"
    changed.write_text(
        STUDY
        + "\nbefore = Priced.evaluate"
        + "\ndef slower(self, design):"
        + "\n    found = dict(before(self, design))"
        + "\n    return {**found, 'pe_count': found['pe_count'] + 1} if int(design.key, 16) % 10 == 1 else found"
        + "\nPriced.evaluate = slower"
    )
    found = json.loads(tune("replay", "runs/fake", "--study", changed, "--json", code=1))
    expected = [r.key for r in result.records if int(r.key, 16) % 10 == 1]
    assert [d["key"] for d in found["different"]] == expected
    assert expected
    assert {d["differences"] for d in found["different"]} == {"pe_count"}
    assert f"{len(expected)} different" in tune("replay", "--study", changed, code=1)


def test_designs_that_are_enumerated_but_never_bred_are_replayed(tmp_path: Path) -> None:
    """Those that Allo cannot build: what their genes stand for in a search can be built."""
    (study,) = load_studies(Path(__file__).parents[2] / "studies" / "gemm_npu.py")
    study.run(run_dir=tmp_path / "run", progress="quiet", seed=0, verify=False, trials=12)
    found = replay_run(tmp_path / "run", study_file=Path(__file__).parents[2] / "studies" / "gemm_npu.py")
    assert (found.different, found.done) == ([], found.records)
    assert any(entry.get("status") == "violation" for entry in Log(tmp_path / "run" / "log.jsonl").entries)


def test_replaying_a_run_stops_when_asked(made: Any) -> None:
    folder, _ = made
    asked = iter([*[""] * 62, "Ctrl-C"])  # before each of 60 proposals, and of two evaluations
    found = replay_run(folder / "runs/fake", stop_requested=lambda: next(asked))
    assert (found.stopped, found.done) == ("Ctrl-C", 2)


def test_compare_designs_and_runs(tune: Any, made: Any) -> None:
    folder, result = made
    a, b = result.front[0], result.front[-1]
    pairs = json.loads(tune("compare", a.key, b.key, "--json"))
    assert pairs["latency_us"] == {"a": a.values["latency_us"], "b": b.values["latency_us"], "equal": False}
    assert pairs["size"]["equal"]
    shutil.copytree(folder / "runs/fake", folder / "copy", dirs_exist_ok=True)
    found = json.loads(tune("compare", "runs/fake", "copy", "--json"))
    assert found["trials"]["equal"]
    assert found["hypervolume"]["a"] == pytest.approx(found["hypervolume"]["b"])


def test_what_two_short_runs_cannot_tell_is_said(tune: Any, tmp_path: Path) -> None:
    for name, trials in (("short", 6), ("shorter", 5)):
        tune("study.py", "--trials", trials, "--run-dir", tmp_path / name, "--no-verify", "-q")
    path, counts = tmp_path / "short" / "run.json", {"evaluated": 6, "failed": 0, "refused": 0, "bounded": 0, "open": 3}
    certificate = {"designs": 9, "listed": True, **counts}
    path.write_text(json.dumps({**json.loads(path.read_text()), "certificate": certificate}))
    command = ["compare", tmp_path / "short", tmp_path / "shorter"]
    assert json.loads(tune(*command, "--json"))["hypervolume"] == {"a": None, "b": None, "equal": None}
    said = tune(*command, "--all")
    assert "hypervolume: can be compared for the same objectives, and once A has 20 feasible designs" in said
    assert "nan" not in said
    assert "not complete: 3 of the space's" in said


@pytest.mark.parametrize("runs", [("runs/fake", "nope"), ("nope", "runs/fake"), ("nope/a", "nope/b")])
def test_comparing_runs_says_which_one_is_missing(tune: Any, runs: tuple[str, str]) -> None:
    missing = next(one for one in runs if "nope" in one)
    assert f"error: {missing} is not a run directory" in tune("compare", *runs, code=2)


def test_equal_designs_are_said_to_be_equal(tune: Any, made: Any) -> None:
    key = made[1].best().key
    assert tune("compare", key, key) == "nothing differs; --all shows what is equal\n"
    assert key in tune("compare", key, key, "--all")


def test_a_run_without_a_feasible_design_says_so_and_exports_those_that_failed(tune: Any, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from tests.tune.fakes import FakeEvaluator, fake_study\n"
        "class Failing(FakeEvaluator):\n"
        "    def evaluate(self, design): raise ValueError('no licence')\n"
        "study = fake_study('failing', evaluator=Failing)\n"
    )
    run = tmp_path / "run"
    tune(tmp_path / "failing.py", "--trials", 3, "--run-dir", run, "-q", code=1)
    none = "no design satisfies all limits and constraints yet\n"
    assert (tune("pareto", run, code=1), tune("best", run, code=1), tune("verify", "--run", run)) == (none,) * 3
    tune("export", "0", "--run", run, "--to", tmp_path / "design")
    assert json.loads((tmp_path / "design" / "design.json").read_text())["predicted"] == {}


def test_a_narrow_comparison_has_whole_names(tune: Any, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, result = made
    monkeypatch.setenv("COLUMNS", "30")
    assert "…" not in tune("compare", result.front[0].key, result.front[-1].key, "--all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "nope"], "nope is not a directory"),
        (["replay", "nope/run"], "nope/run is not a run directory"),
        (["show", "ffff"], "has no design 'ffff'"),
        (["show", "ab"], "4 characters"),
        (["show", "3", "--run", "nowhere"], "nowhere is not a run directory"),
        (["best", "--objective", "speed"], "one of latency_us, pe_count"),
        (["show", "3", "runs/fale"], "did you mean runs/fake?"),
        (["show", "3", "runs/fake", "--run", "fake"], "one run is needed, and 2 are given"),
        (["stauts"], "no command 'stauts' hint: did you mean status?"),
        (["show"], "Missing argument"),
    ],
)
def test_errors_have_hints(tune: Any, arguments: Any, message: str) -> None:
    assert message in " ".join(tune(*arguments, code=2).split())


@pytest.mark.parametrize("command", ["status", "best", "pareto", "show", "replay", "compare"])
def test_every_command_has_examples(tune: Any, command: str) -> None:
    text = tune(command, "--help")
    assert "Examples" in text
    assert f"allo-tune {command}" in text
    assert "--json" in text


def test_a_live_run_is_seen_and_not_disturbed(tune: Any, tmp_path: Path) -> None:
    """As it goes on, and while it waits for a design that is only evaluated when it has been seen."""
    looked = threading.Event()

    class Waiting(FakeEvaluator):
        evaluated = 0

        def evaluate(self, design: Any) -> Any:
            Waiting.evaluated += 1
            if Waiting.evaluated == 60:
                looked.wait()
            return super().evaluate(design)

    study = fake_study(evaluator=Waiting)
    run = threading.Thread(target=study.run, args=(80,), kwargs={"run_dir": tmp_path / "run", "progress": "quiet"})
    run.start()
    seen = []
    try:
        while run.is_alive():
            if (tmp_path / "run" / "run.json").exists():
                facts = json.loads(tune("status", tmp_path / "run", "--json"))
                seen.append((facts["running"], facts["trials"]))
                if facts["trials"]:
                    looked.set()
    finally:
        looked.set()
        run.join()
    assert any(running and 0 < trials < 80 for running, trials in seen)
    assert [t for _, t in seen] == sorted(t for _, t in seen)
    assert running(tmp_path / "run") is None


def test_looking_at_a_directory_does_not_keep_a_driver_out(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "run").close()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            running(tmp_path / "run")

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(20):
            RunDirectory(tmp_path / "run").close()
    finally:
        stop.set()
        looker.join()


DAMAGED_RECORDS = [
    {"type": "design"},
    {"type": "design", "number": "x", "key": 7, "status": "ok", "genes": 3, "params": [], "at": "y"},
    {"type": "verify"},
    {"type": "values", "key": "a"},
    {"nothing": 1},
]


@pytest.mark.parametrize("entry", DAMAGED_RECORDS, ids=range(len(DAMAGED_RECORDS)))
def test_entries_that_make_no_sense_are_said(tune: Any, made: Any, tmp_path: Path, entry: Any) -> None:
    folder, _ = made
    shutil.copytree(folder / "runs/fake", tmp_path / "run")
    with (tmp_path / "run/log.jsonl").open("ab") as file:
        file.write(encode_line(entry))
    for command in (["status", tmp_path / "run"], ["study.py", "--trials", 61, "--run-dir", tmp_path / "run"]):
        assert "makes no sense" in tune(*command, code=2)


@pytest.mark.parametrize("info", ['{"x', "[]", '{"study": 3, "seed": "x"}', None])
def test_a_damaged_description_of_a_run_is_said(tune: Any, made: Any, tmp_path: Path, info: str | None) -> None:
    folder, _ = made
    shutil.copytree(folder / "runs/fake", tmp_path / "run")
    path = tmp_path / "run/run.json"
    path.write_text(info or json.dumps({**json.loads(path.read_text()), "space": [], "command": 7}))
    for command in (["status", tmp_path / "run"], ["best", tmp_path / "run"], ["replay", tmp_path / "run"],
                    ["study.py", "--trials", 61, "--run-dir", tmp_path / "run"]):  # fmt: skip
        assert "run.json is damaged" in tune(*command, code=2)


def test_what_evaluators_say_can_neither_move_the_cursor_nor_hide_the_best(
    tune: Any, made: Any, tmp_path: Path
) -> None:
    (tmp_path / "study.py").write_text(
        "from tests.tune.fakes import FakeEvaluator, fake_study\n"
        "class Odd(FakeEvaluator):\n"
        "    def evaluate(self, design):\n"
        "        if int(design.key, 16) % 3 == 0: raise ValueError('\\x1b[31m [bold] \\x07')\n"
        "        if int(design.key, 16) % 3 == 1:\n"
        "            return {**super().evaluate(design), 'latency_us': float('nan'), 'pe_count': float('inf')}\n"
        "        return super().evaluate(design)\n"
        "study = fake_study('odd', evaluator=Odd)\n"
    )
    said = tune(tmp_path / "study.py", "--trials", 24, "--run-dir", tmp_path / "run", "--no-verify")
    entries = [e for e in Log(tmp_path / "run/log.jsonl").entries if e["type"] == "design"]
    odd = next(e for e in entries if "[bold]" in (e.get("error") or ""))
    said += tune("show", odd["key"], "--run", tmp_path / "run")
    assert "\\x1b[31m [bold] \\x07" in said
    assert not {"\x1b", "\x07"} & set(said)
    best = min(e["metrics"]["latency_us"] for e in entries if e["status"] == "ok")
    assert json.loads(tune("status", tmp_path / "run", "--json"))["best"]["latency_us"] == best


def test_a_report_says_where_it_is(tune: Any, made: Any, tmp_path: Path) -> None:
    found = json.loads(tune("report", "runs/fake", "-o", tmp_path / "r.html", "--json"))
    assert found == {"file": str(tmp_path / "r.html"), "bytes": (tmp_path / "r.html").stat().st_size,
                     "runs": [str(made[0] / "runs/fake")]}  # fmt: skip


def test_runs_are_listed_exported_and_removed(tune: Any, made: Any, tmp_path: Path) -> None:
    folder, result = made
    (found,) = json.loads(tune("list", "--json"))["runs"]
    assert (found["run_dir"], found["trials"], found["failed"]) == ("runs/fake", 60, result.failures.total())
    assert "runs/fake  fake on fake_npu" in tune("list")
    key = result.best().key
    told = json.loads(tune("export", key[:8], "--to", tmp_path / "design", "--json"))
    assert told["key"] == key
    assert {"mapping.py", "parameters.json"} <= {path.name for path in (tmp_path / "design").iterdir()}
    copy = folder / "runs" / "copy"
    shutil.copytree(folder / "runs" / "fake", copy)
    assert "would remove" in tune("clean", copy)
    assert copy.exists()
    assert json.loads(tune("clean", copy, "--yes", "--json")) == {"removed": [str(copy)]}
    assert not copy.exists()
    assert "is not a run directory" in tune("clean", tmp_path, "--yes", code=2)
    assert "no run in runs/ is empty" in tune("clean", "--empty")
    assert "clean needs the names of runs" in tune("clean", code=2)


def test_help_of_a_study_lists_its_settings(tune: Any) -> None:
    text = tune("study.py", "--help")
    assert "--set salt=...  str  default: ''" in text


@pytest.mark.parametrize("command", [["status"], ["best"], ["show", "0"]])
def test_asking_about_a_run_imports_neither_compiler_nor_tables(made: Any, command: list[str]) -> None:
    folder, _ = made
    code = (
        f"import sys; sys.argv = ['allo-tune', *{command}]\n"
        "from allo_dse.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('pandas', 'optuna', 'ray', 'torch_mlir', 'mlir') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
