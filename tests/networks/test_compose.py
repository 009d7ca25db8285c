"""From a network to launches, as users go: fronts by the tuner, a composition, its files, and the command."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import allo_dse as dse
from allo_dse.cli.commands.network import _show, network
from allo_dse.common.records import replace
from allo_dse.device.device import Device, NpuDevice
from allo_dse.networks import fronts as fronts_module
from allo_dse.networks.compose import Composition, compose, compositions
from allo_dse.networks.export.export import export
from allo_dse.networks.fronts import Fronts, search_fronts
from allo_dse.networks.operators import element_type, gemm_work, rms_norm_work, unary_work
from allo_dse.networks.operators.execute import difference
from allo_dse.tune.results.result import Result
from allo_dse.tune.search.budget import StepLeft
from allo_dse.tune.store.rundir import RunDirectory

from ..support.commands import allo_tune

SIZES = ("--set", "rows=64", "--set", "width=32", "--set", "hidden=64")
OPTIONS = ("--device", "npu1_2col", "--trials", "4")


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Fronts:
    """Two products of different sizes with a ReLU between them."""
    element = element_type("bf16")
    net = dse.Network("small")
    x, up, down = (
        net.input("x", (64, 32)),
        net.constant("up", np.ones((32, 64))),
        net.constant("down", np.ones((64, 32))),
    )
    hidden = net.add(gemm_work(64, 64, 32, element), x, up)
    active = net.add(unary_work("relu", 64 * 64, element), hidden)
    net.output(net.add(gemm_work(64, 32, 64, element), active, down))
    return search_fronts(net, "npu1_2col", trials=4, cache=tmp_path_factory.mktemp("cache"))


def _check(found: Composition, columns: int) -> None:
    """Launches follow each other, and nothing of one has columns of another."""
    device = found.fronts.device
    assert isinstance(device, NpuDevice)
    board = device.board
    for launch in found.launches:
        taken = sorted((r.first_column, r.point.columns) for r in launch.designs.values())
        assert all(first + width <= later for (first, width), (later, _) in pairwise(taken))
        assert sum(taken[-1]) <= columns
    for before, after in pairwise(found.launches):
        assert after.start_us >= before.end_us + board.relaunch_us - board.launch_us - 1
    assert found.gap == 0
    assert sum(found.time_us.values()) == pytest.approx(found.latency_us, rel=1e-3)


def test_more_columns_are_never_slower_and_the_whole_is_told(fronts: Fronts) -> None:
    few, *more = compositions(fronts)
    _check(few, 1)
    # Of the three steps the first two are one program: one configuration less, and no tensor between them in DRAM.
    assert [run.step.name for launch in few.launches for run in launch.runs] == ["gemm_0+relu_1", "gemm_2"]
    assert len(few.launches) == 2
    waits = [run.point.latency_us * run.point.bound["host"] for launch in few.launches for run in launch.runs]
    assert few.time_us["host"] == pytest.approx(sum(waits), rel=1e-3)  # one after another, each waits for its launch
    for one in more:
        _check(one, 2)
        assert one.latency_us < few.latency_us
    single = replace(fronts, candidates=tuple(one for one in fronts.candidates if len(one.names) == 1))
    assert len(compose(single, columns=1).launches) == 3
    assert compose(single).latency_us > compose(fronts).latency_us


def test_no_more_is_used_than_there_is(fronts: Fronts) -> None:
    """Launches were composed on columns that the device does not have."""
    there = fronts.device.array.columns  # type: ignore[attr-defined]
    with pytest.raises(dse.StudyError, match=f"columns={there + 1}: .* has {there}"):
        compose(fronts, columns=there + 1)
    with pytest.raises(dse.StudyError, match="share=2 of"):
        compose(fronts, share=2.0)
    with pytest.raises(dse.StudyError, match="columns=1: u280 has none"):
        compose(replace(fronts, device=Device.of("u280")), columns=1)


def test_the_folded_designs_together_compute_what_the_operators_do(fronts: Fronts) -> None:
    network = fronts.network
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    exact = network.run({"x": x}, simulated=False)
    found = compose(fronts).run({"x": x})
    for name in network.outputs:
        assert difference(found[name], exact[name]) < 0.02  # bfloat16, three times


def test_what_runs_at_once_is_simulated_together(tmp_path: Path) -> None:
    """Two functions of one input, side by side: the DRAM is theirs together; and a stream of inputs overlaps."""
    size, element = 1 << 18, element_type("bf16")
    net = dse.Network("two")
    x = net.input("x", (size,))
    net.output(*(net.add(unary_work(op, size, element), x) for op in ("relu", "silu")))
    fronts = search_fronts(net, "npu1_2col", trials=2, cache=tmp_path)
    one_by_one = compose(fronts)
    assert not any(launch.at_once for launch in one_by_one.launches)
    found = compose(fronts, runtime="launches")
    (launch,) = found.launches
    assert launch.at_once
    assert found.simulated_us == pytest.approx(found.latency_us, rel=0.2)
    assert found.simulated_us >= max(run.point.latency_us for run in launch.runs) - 1
    assert found.inputs_per_s() == pytest.approx(1e6 / found.latency_us)
    assert found.inputs_per_s() <= found.inputs_per_s(16) <= 1e6 / launch.period_us(found.fronts.device)


def test_only_allo_configures_the_array_for_each_call(fronts: Fronts) -> None:
    device = fronts.device
    assert isinstance(device, NpuDevice)
    found = compose(fronts)
    calls = sum(len(launch.runs) for launch in found.launches)
    assert found.configuring_us == calls * device.board.reconfigure_us
    assert compose(replace(fronts, target="model")).configuring_us == 0


def test_every_launch_is_written_with_designs_to_build(fronts: Fronts, tmp_path: Path) -> None:
    found = compose(fronts)
    written = export(found, tmp_path / "built")
    facts = json.loads((tmp_path / "built" / "network.json").read_text())
    assert tmp_path / "built" / "network.json" in written
    for launch in facts["launches"]:
        for run in launch["runs"]:
            folder = tmp_path / "built" / f"launch_{launch['number']}" / run["design"]
            assert {"program.py", "mapping.py", "placement.json"} <= {one.name for one in folder.iterdir()}


def test_an_operator_that_does_not_fit_its_tensors_is_refused() -> None:
    net = dse.Network("wrong")
    x, w = net.input("x", (64, 32)), net.constant("w", np.ones((16, 64)))
    with pytest.raises(dse.StudyError, match="step 'gemm_0': w of"):
        net.add(gemm_work(64, 64, 32, element_type("bf16")), x, w)
    with pytest.raises(dse.StudyError, match="no tensor 'y'"):
        net.output("y")


def test_steps_are_told_apart_by_their_names() -> None:
    net = dse.Network()
    relu = unary_work("relu", 64, element_type("f32"))
    x = net.add(relu, net.input("x", (64,)), name="same", output="once")
    with pytest.raises(dse.StudyError, match="two steps named 'same'"):
        net.add(relu, x, name="same", output="twice")
    net.add(relu, x, name="relu_2")
    net.add(relu, x)
    assert [step.name for step in net.steps] == ["same", "relu_2", "relu_3"]


def test_an_operator_that_nothing_builds_is_named(tmp_path: Path) -> None:
    net = dse.Network("deep")
    x, w = net.input("x", (64, 4096)), net.constant("w", np.ones(4096))
    net.output(net.add(rms_norm_work(64, 4096, 1e-5, element_type("f32")), x, w, name="norm"))
    with pytest.raises(dse.StudyError, match=r"deep: step 'norm' \(rms_norm\)") as error:
        search_fronts(net, "npu1_1col", trials=2, cache=tmp_path, host="never")
    assert error.value.hint.startswith('target "model" (--target model)')


def test_an_operator_without_a_design_runs_on_the_host(tmp_path: Path) -> None:
    net = dse.Network("deep")
    x, w = net.input("x", (64, 4096)), net.constant("w", np.ones(4096))
    y = net.add(rms_norm_work(64, 4096, 1e-5, element_type("f32")), x, w, name="norm")
    net.output(net.add(unary_work("relu", 64 * 4096, element_type("f32")), y, name="relu"))
    found = compose(search_fronts(net, "npu1_1col", trials=2, cache=tmp_path))
    assert list(found.host_us) == ["norm"]
    ((why, names),) = found.why_host.items()
    assert names == ["norm"]
    assert "none of " in why
    assert 0 < found.device_share < 1
    given = {"x": np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)}
    wanted = found.session("host").run(given)["relu.result"]
    for session in (found.session(), found.session("simulator")):
        assert difference(session.run(given)["relu.result"], wanted) < 1e-6
        assert session.predicted_us.keys() == {"norm", "relu"}
    with pytest.raises(dse.StudyError, match="input 'x' needs an array"):
        found.session().run({})
    with pytest.raises(dse.StudyError, match="a session on 'board' in the folder None"):
        found.session("board")


def test_the_command_maps_a_network(tmp_path: Path) -> None:
    study, cache = "studies/networks/mlp_npu.py", str(tmp_path / "cache")
    done = allo_tune("network", study, *SIZES, *OPTIONS, "--cache", cache, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["compositions"]
    assert [run["step"] for launch in found["launches"] for run in launch["runs"]] == [
        *("up_projection+relu", "down_projection"),
    ]
    designs = ["up_projection (gemm)", "relu (relu)", "down_projection (gemm)", "up_projection+relu (gemm_relu)"]
    assert done.stderr.splitlines() == [f"{at} of 4: designs of {one}" for at, one in enumerate(designs, 1)]
    again = allo_tune("network", study, *SIZES, *OPTIONS, "--cache", cache)
    assert "no composition of these designs is faster" in again.stdout
    assert found["configuring_us"] == 2 * 3400
    assert found["runtime"] == "calls"
    calls = [run["latency_us"] for launch in found["launches"] for run in launch["runs"]]
    assert found["latency_us"] == pytest.approx(sum(calls) + found["configuring_us"], abs=1)
    assert "assumed: another xclbin" in " ".join(again.stdout.split())
    assert "control packets (--runtime packets): 123 us" in " ".join(again.stdout.split())
    assert found["called_us"]["calls"] == pytest.approx(found["latency_us"], abs=1)
    assert found["called_us"]["calls"] - found["called_us"]["packets"] == pytest.approx(2 * (3400 - 123), abs=1)
    assert not found["overdue"]
    packets = allo_tune("network", study, *SIZES, *OPTIONS, "--cache", cache, "--json", "--runtime", "packets")
    (found,) = json.loads(packets.stdout)["compositions"]
    assert found["latency_us"] == pytest.approx(found["called_us"]["packets"], abs=1)
    assert not again.stderr


def _two_products() -> dse.Network:
    net = dse.Network("two")
    x = net.input("x", (32, 32))
    for name in ("first", "second"):
        size = 32 if name == "first" else 64
        w = net.constant(f"{name}_w", np.ones((32, size)))
        net.output(net.add(gemm_work(32, size, 32, element_type("bf16")), x, w, name=name))
    return net


@pytest.mark.parametrize("device", ["npu1_1col", "u280"])
def test_a_search_that_is_stopped_is_no_search_without_designs(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = dse.Study.run
    stopped = iter([True])

    def stopping(study: dse.Study, *given: Any, **named: Any) -> Result:
        result = run(study, *given, **named)
        return replace(result, stopped="SIGTERM") if next(stopped, False) else result

    monkeypatch.setattr(dse.Study, "run", stopping)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        search_fronts(_two_products(), device, trials=2, cache=tmp_path)
    assert search_fronts(_two_products(), device, trials=2, cache=tmp_path).points


@pytest.mark.parametrize("device", ["npu1_2col", "u280"])
def test_designs_that_are_kept_are_not_searched_again(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what has none on few columns; what is kept and damaged, or of another space, is."""
    found = search_fronts(_two_products(), device, trials=2, cache=tmp_path)
    asked: list[str] = []
    run = dse.Study.run

    def searching(study: dse.Study, *given: Any, **named: Any) -> Result:
        asked.append(study.name)
        return run(study, *given, **named)

    monkeypatch.setattr(dse.Study, "run", searching)
    again = search_fronts(_two_products(), device, trials=2, cache=tmp_path)
    assert not asked
    for key, points in found.points.items():
        told, kept = (
            [(p.design.key, dict(p.design.metrics), p.resources, p.proved) for p in own]
            for own in (points, again.points[key])
        )
        assert told == kept
    (path, *_) = tmp_path.glob("*/front.json")
    for damaged in (path.read_text().replace('"key":"', '"key":"another'), "{"):
        path.write_text(damaged)
        search_fronts(_two_products(), device, trials=2, cache=tmp_path)
    assert len(asked) == 2


def test_designs_whose_directory_cannot_be_used_are_not_left_out(tmp_path: Path) -> None:
    """They were taken for such as need more columns, and the composition without them for proved."""
    found = search_fronts(_two_products(), "npu1_2col", trials=2, cache=tmp_path)
    place = next(point.design.run_dir for points in found.points.values() for point in points if point.columns == 1)
    assert place is not None
    (place / fronts_module.KEPT).unlink()
    other = RunDirectory(place)
    with pytest.raises(dse.StudyError, match="in use by process") as caught:
        search_fronts(_two_products(), "npu1_2col", trials=2, cache=tmp_path)
    other.close()
    assert "--cache" in caught.value.hint
    shutil.rmtree(place)
    place.touch()
    with pytest.raises(dse.StudyError, match=f"^{place} is a file") as caught:
        search_fronts(_two_products(), "npu1_2col", trials=2, cache=tmp_path)
    assert "--cache" in caught.value.hint


def test_a_program_that_changes_during_the_search_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, sources = fronts_module.work_key, iter(["before", "before"])
    monkeypatch.setattr(fronts_module, "work_key", lambda work: key(work) + next(sources, "after"))
    with pytest.raises(dse.StudyError, match=r"two: the source of 'first' \(gemm\) changed during the search"):
        search_fronts(_two_products(), "npu1_1col", trials=2, cache=tmp_path)


def test_the_command_that_is_stopped_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*given: object, **named: object) -> Fronts:
        raise StepLeft("SIGTERM")

    monkeypatch.setattr(fronts_module, "search_fronts", stopped)
    monkeypatch.setattr(sys, "argv", ["allo-tune", "network", "studies/networks/mlp_npu.py"])
    with pytest.raises(typer.Exit) as left:
        network(Path("studies/networks/mlp_npu.py"), cache=tmp_path)
    assert left.value.exit_code == 143
    said = capsys.readouterr().err
    assert "what was evaluated is kept. Go on with: allo-tune network studies/networks/mlp_npu.py" in said


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    done = allo_tune("network", "studies/networks/mlp_npu.py", "--set", "row=64")
    assert done.returncode == 2
    assert "did you mean rows?" in done.stderr
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"nothing")
    done = allo_tune("network", str(broken))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_tensors_have_sizes_and_numbers() -> None:
    """Others ended in tracebacks, of random inputs and references."""
    net = dse.Network()
    for shape in ((-1, 4), (0,), (1.5, 4)):
        with pytest.raises(dse.StudyError, match=r"input 'x' of .*: sizes are positive whole numbers"):
            net.input("x", shape)  # type: ignore[arg-type]
    with pytest.raises(dse.StudyError, match="constant 'w' has elements of type object"):
        net.constant("w", np.array(["a"], object))
    assert net.constant("w", [[1, 2]]) == "w"  # type: ignore[arg-type]


def test_names_of_operators_are_no_markup(fronts: Fronts, capsys: pytest.CaptureFixture[str]) -> None:
    """`[bold]` was not shown, and `[/b]` ended in a traceback."""
    found = compose(fronts)
    first, *runs = found.launches[0].runs
    named = replace(first, step=replace(first.step, name="a[/b]"))
    one = replace(found.launches[0], runs=(named, *runs))
    _show(replace(found, launches=(one, *found.launches[1:])))
    assert "a[/b] (gemm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stream"], "launches of an NPU"),
        (["--stream", "--front"], "leave one of them out"),
        (["--tolerance", "nan"], "tolerance=nan is no share"),
        (["-o", "pyproject.toml"], "pyproject.toml is a file"),
    ],
)
def test_options_that_would_not_count_are_refused(options: list[str], said: str) -> None:
    done = allo_tune("network", "studies/networks/mlp_npu.py", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("device", "widths"), [("npu2", [1, 2, 4, 6, 8]), ("npu1_4col", [1, 2, 4]), ("npu2_7col", [1, 2, 4, 5, 7])]
)
def test_numbers_of_columns_that_designs_are_searched_for(device: str, widths: list[int]) -> None:
    """Three quarters leave room for small operators beside a large one."""
    assert [width for width, _ in fronts_module.launches_of(Device.of(device)).parts()] == widths
