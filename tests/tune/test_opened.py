"""Runs opened again from Python, and what plain functions are good for."""

from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.common.errors import StudyError
from allo_dse.tune.study import load_studies

from .fakes import FakeEvaluator, fake_study


def test_a_run_opened_again_is_the_result_that_it_gave(tmp_path: Path) -> None:
    made = fake_study().run(40, run_dir=tmp_path / "run", progress="quiet")
    found = dse.open_run(tmp_path / "run", study=fake_study())
    assert [d.key for d in found.front] == [d.key for d in made.front]
    assert found.trials.equals(made.trials)
    assert found.unverified == 0
    with pytest.raises(StudyError, match="not made from a study file") as caught:
        dse.open_run(tmp_path / "run")
    assert "study=" in caught.value.hint
    with pytest.raises(StudyError, match="not a run directory"):
        dse.open_run(tmp_path)


def cores(design: Any) -> int:
    return int(design.fold.node_count)


def formula(design: Any) -> Any:
    return FakeEvaluator().evaluate(design)


def few(metrics: Any) -> bool:
    return bool(metrics.cores <= 8)


def test_a_function_of_a_design_that_gives_a_number_is_an_evaluator(tmp_path: Path) -> None:
    study = fake_study(evaluator=cores, objectives=[dse.maximize("cores")], constraints=[few])
    result = study.run(30, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert result.best().values == {"cores": 8.0}
    assert result.records[0].evaluator == "cores 1"
    assert result.unmet.keys() <= {"few"}


def latency(metrics: Any) -> float:
    return float(metrics.latency_us)


def test_a_function_of_metrics_is_an_objective_to_be_minimised(tmp_path: Path) -> None:
    study = fake_study(evaluator=formula, objectives=[latency])
    same = fake_study(objectives=[dse.minimize("latency_us", name="latency")])
    found = [s.run(30, run_dir=tmp_path / n, progress="quiet", verify=False) for n, s in (("a", study), ("b", same))]
    assert found[0].best().values == found[1].best().values
    assert found[0].unverified == len(found[0].front) > 0


def test_what_is_shown_of_results_is_short_and_harmless(tmp_path: Path) -> None:
    result = fake_study("<b>fake").run(10, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert repr(result).startswith("Result('<b>fake', 10 designs, ")
    assert "<b>fake" not in result._repr_html_()
    best = result.best()
    assert repr(best).startswith(f"BestDesign({best.key[:8]}, latency_us=")


def test_a_notebook_shows_front_design_graph_device_and_placement(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "studies" / "gemm_npu.py"
    (study,) = load_studies(file, {"size": "128", "device": "npu1_2col"})
    result = study.run(6, run_dir=tmp_path / "run", progress="quiet", verify=False)
    again = dse.open_run(tmp_path / "run", study=study)
    assert (str(again.certificate), again.limits) == (str(result.certificate), result.limits)
    best = result.best()
    assert repr(result.front).startswith(f"Front({len(result.front)} designs, latency_us ")
    assert result.front._repr_html_().count("<tr>") == 1 + len(result.front)
    placed = dse.place(best.design)
    assert isinstance(placed, dse.PlacedDesign)
    for shown in (best, best.design, best.design.vmg, best.design.program, placed):
        assert len(repr(shown)) < 200
    for pictured in (best, best.design, best.design.vmg, best.design.program, placed):
        assert "<svg" in pictured._repr_html_()
    assert "<th>latency_us</th>" in best._repr_html_()
    for name, has in (("npu1_4col", "<th>cores</th><td>16</td>"), ("u280", "<th>dsp for designs</th><td>9,024</td>")):
        assert has in dse.Device.load(name)._repr_html_()


def test_a_notebook_has_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_study().run(10, run_dir=tmp_path / "run", progress="notebook")
    shown = capsys.readouterr().err
    assert "10/10" in shown
    assert "latency_us" in shown
