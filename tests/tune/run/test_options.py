"""How a run may be asked for is said once: `Study.run` and the command line take what `RunOptions` has."""

import inspect
import sys
from dataclasses import KW_ONLY, fields
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import allo_dse
from allo_dse.cli.commands import tune as command
from allo_dse.common.errors import StudyError
from allo_dse.tune.run.options import RunOptions
from allo_dse.tune.run.session import run_study
from allo_dse.tune.study import Study

from ...support.values import present
from ..fakes import FakeEvaluator, fake_study

PACKAGE = Path(allo_dse.__file__).parent
NAMES = [field.name for field in fields(RunOptions) if field.type is not KW_ONLY]


def test_every_option_is_explained_and_study_run_takes_it() -> None:
    assert list(RunOptions.help()) == NAMES
    assert list(inspect.signature(Study.run).parameters) == ["self", *NAMES]
    kinds = {p.kind for p in list(inspect.signature(Study.run).parameters.values())[2:]}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert all(f"{name}: {text[:40]}" in present(Study.run.__doc__) for name, text in RunOptions.help().items())


def test_flags_are_options_with_the_same_defaults() -> None:
    parameters = inspect.signature(command.tune).parameters
    defaults = {field.name: field.default for field in fields(RunOptions)}
    own = {"study", "settings", "target", "evaluator", "no_cache", "as_json", "quiet", "version", "dry_run"}
    assert parameters.keys() - own == set(NAMES) - {"progress", "command", "target"}  # `--target` is also the builder
    assert all(parameters[name].default == defaults[name] for name in parameters.keys() - own)


WRONG = [
    ({"workers": 0}, "0 workers"),
    ({"workers": 4097}, "4,097 workers are too many"),
    ({"workers": 1.5}, "workers=1.5 is not a whole number"),
    ({"trials": 0}, "0 trials"),
    ({"trials": "9"}, "not a whole number"),
    ({"time": "soon"}, "not a duration"),
    ({"time": -1}, "leaves no time"),
    ({"time": []}, "not a duration"),
    ({"seed": -1}, "seed -1"),
    ({"seed": 1 << 32}, "seed 4294967296"),
    ({"sampler": "evolutoin"}, "did you mean evolution"),
    ({"sampler": 3}, "unknown sampler 3"),
    ({"progress": "loud"}, "unknown progress"),
    ({"progress": 3}, "unknown progress"),
    ({"storage": "nowhere"}, "is not a storage"),
    ({"storage": "sqlite:////nonexistent/file.db"}, "cannot use the storage"),
    ({"deadline": {"nobody": 3}}, "no such evaluator"),
    ({"deadline": "soon"}, "not a duration"),
    ({"cache": "log.jsonl"}, "cannot keep results"),
    ({"initial": 0}, "initial=0 is no number of designs"),
    ({"population": -3}, "population=-3 is no number of designs"),
    ({"children": 0}, "children=0 is no number of designs"),
    ({"modelled": -1}, "modelled=-1 is no number of designs"),
    ({"warm_start": "/nonexistent"}, "is not a run directory"),
    ({"ray_address": "localhost:1"}, "cannot reach Ray"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
def test_options_are_looked_at_before_anything_is_discarded_or_written(tmp_path: Path, wrong: Any, text: str) -> None:
    run_dir = tmp_path / "run"
    with pytest.raises(StudyError, match=text):
        fake_study().run(**{"progress": "quiet", **wrong, **_inside(wrong, run_dir)}, run_dir=run_dir)
    assert not run_dir.exists()
    fake_study().run(3, run_dir=run_dir, progress="quiet", verify=False)
    before = (run_dir / "run.json").read_bytes(), (run_dir / "log.jsonl").read_bytes()
    with pytest.raises(StudyError, match=text):
        fake_study().run(**{"progress": "quiet", **wrong, **_inside(wrong, run_dir)}, run_dir=run_dir, fresh=True)
    assert ((run_dir / "run.json").read_bytes(), (run_dir / "log.jsonl").read_bytes()) == before


class Nowhere(FakeEvaluator):
    def unavailable(self) -> str | None:
        return "there is no such board"


def test_an_evaluator_that_cannot_run_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="there is no such board"):
        fake_study(evaluator=Nowhere).run(3, run_dir=tmp_path / "run", progress="quiet")
    assert not (tmp_path / "run").exists()


def _inside(wrong: Any, run_dir: Path) -> dict[str, Any]:
    """A cache that cannot be: below a file."""
    file = run_dir.parent / "file"
    file.write_text("x")
    return {"cache": file / "below"} if "cache" in wrong else {}


def test_a_run_that_is_told_nothing_makes_the_trials_of_its_study() -> None:
    assert RunOptions().budget(500, has_rungs=False).trials == 500
    assert RunOptions(time="1m").budget(500, has_rungs=False).trials is None
    assert RunOptions(7, time="1m").budget(500, has_rungs=True).trials == 7


def test_the_shortest_time_is_enough_for_one_design(tmp_path: Path) -> None:
    result = fake_study().run(time=1e-9, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert (len(result.records), result.stopped) == (1, "time")


class Stack(FakeEvaluator):
    """Notes which functions of the package have led to it."""

    path: tuple[str, ...] = ()

    def evaluate(self, design: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        found: list[str] = []
        while frame is not None:
            if PACKAGE in Path(frame.f_code.co_filename).parents:
                found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        Stack.path = tuple(reversed(found))
        return super().evaluate(design)


def test_nobody_stands_between_a_run_and_its_evaluator_who_only_passes_on(tmp_path: Path) -> None:
    run_study(fake_study(evaluator=Stack), RunOptions(1, run_dir=tmp_path / "run", progress="quiet", verify=False))
    assert Stack.path == ("run_study", "Driver.run", "InlineExecutor.collect", "InProcessEvaluator.run")


def test_a_run_that_shall_not_export_writes_no_folders_to_build_from(tmp_path: Path) -> None:
    for export in (False, True):
        run_dir = tmp_path / str(export)
        fake_study().run(3, run_dir=run_dir, progress="quiet", verify=False, export=export)
        assert (run_dir / "best").exists() is export
        assert (run_dir / "pareto.csv").exists()
