"""How a run may be asked for is said once: `Study.run` and the command line take what `RunOptions` has."""

import inspect
import sys
from dataclasses import KW_ONLY, fields
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import allo_dse
from allo_dse.cli import tune as command
from allo_dse.errors import StudyError
from allo_dse.tune.run.options import RunOptions
from allo_dse.tune.run.session import run_study
from allo_dse.tune.study import Study
from tests.support.values import present
from tests.tune.fakes import FakeEvaluator, fake_study

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
    own = {"study", "settings", "target", "evaluator", "no_cache", "as_json", "quiet", "version"}
    assert parameters.keys() - own == set(NAMES) - {"progress", "command"}
    assert all(parameters[name].default == defaults[name] for name in parameters.keys() - own)


@pytest.mark.parametrize(("wrong", "text"), [({"workers": 0}, "0 workers"), ({"trials": 0}, "0 trials")])
def test_options_that_leave_nothing_to_do_are_refused(wrong: Any, text: str) -> None:
    with pytest.raises(StudyError, match=text):
        RunOptions(**wrong)


def test_a_run_that_is_told_nothing_makes_the_trials_of_its_study() -> None:
    assert RunOptions().budget(500, ladder=False).trials == 500
    assert RunOptions(time="1m").budget(500, ladder=False).trials is None
    assert RunOptions(7, time="1m").budget(500, ladder=True).trials == 7


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
    assert Stack.path == ("run_study", "Driver.run", "InlineExecutor.collect", "OpenBench.run")
