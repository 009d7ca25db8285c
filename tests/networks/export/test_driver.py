"""The driver of an exported network against a stand-in for Allo: times, results, and what goes wrong."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.networks.compose import Composition, compose
from allo_dse.networks.export import driver
from allo_dse.networks.export.export import export
from allo_dse.networks.fronts import search_fronts
from allo_dse.networks.network import Arrange, Host
from allo_dse.networks.operators import element_type, gemm_work, rms_norm_work, unary_work
from allo_dse.networks.operators.execute import difference

from ...backends.npu.board.test_run import ROOT, STAND_IN
from ..models import Writer


def embedded(table: NDArray[np.float32], words: NDArray[np.int64], by: float) -> NDArray[np.float32]:
    """What the host does before anything else."""
    vectors: NDArray[np.float32] = np.float32(by) * table[words.astype(int)]
    return vectors


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Composition:
    """Words, their vectors on the host, two products alike with a rearrangement and others between them."""
    element, rng = element_type("bf16"), np.random.default_rng(0)
    net = dse.Network("words")
    words, table = net.input("words", (32,)), net.constant("table", rng.standard_normal((2, 32)).astype(np.float32))
    first, second = (net.constant(n, rng.standard_normal((32, 32)).astype(np.float32)) for n in ("a/first", "b"))
    x = net.add(Host("embed", partial(embedded, by=0.5)), table, words, name="embed")
    x = net.add(rms_norm_work(32, 32, 1e-5, element), x, net.constant("weight", np.ones(32, np.float32)), name="norm")
    x = net.add(gemm_work(32, 32, 32, element), x, first, name="up")
    x = net.add(unary_work("relu", 1024, element), x, name="relu", shape=(32, 32))
    x = net.add(Arrange(np.transpose, False), x, name="turn")
    net.output(net.add(gemm_work(32, 32, 32, element), x, second, name="down"))
    return compose(search_fronts(net, "npu1_2col", trials=4, cache=tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def exported(found: Composition, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    export(found, folder)
    return folder


def _run(folder: Path, lock: Path, mode: str = "", *flags: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(STAND_IN), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "ALLO_NPU_LOCK": str(lock), "STAND_IN_ALLO": mode}
    command = [sys.executable, str(folder / "run.py"), "--json", "--repetitions", "3", *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_the_driver_runs_launches_and_checks_their_results(found: Composition, exported: Path, tmp_path: Path) -> None:
    done = _run(exported, tmp_path / "lock")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    runs = [[run["step"] for run in launch["runs"]] for launch in said["launches"]]
    assert runs == [[run.step.name for run in launch.runs] for launch in found.launches]
    # Each call of the stand-in takes 1 us more than the one before, which the driver takes the median of three of.
    times = {run["step"]: run["latency_us"] for launch in said["launches"] for run in launch["runs"]}
    assert times.pop("down") in (102.0, 105.0)  # the first or the second of a design
    assert set(times.values()) == {102.0}
    assert said["latency_us"] == sum(launch["latency_us"] for launch in said["launches"])
    assert said["checked"] is True
    assert 0 < said["differences"]["down.result"] < 0.05
    assert set(said["host_us"]) == {"embed", "turn"}


def test_a_session_on_a_board_computes_what_its_inputs_say(
    found: Composition, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `run.py --inputs FILE --outputs FILE`, which compares nothing with the exported inputs' results."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(ROOT)]))
    monkeypatch.setenv("ALLO_NPU_LOCK", str(tmp_path / "lock"))
    session = found.session("board", folder=exported)
    words = (np.arange(32) % 3 == 0).astype(np.int64)
    made = session.run({"words": words})["down.result"]
    assert difference(made, found.run({"words": words})["down.result"]) < 0.05
    assert session.measured_us.keys() == session.predicted_us.keys()
    for name, given, message in (
        ("others", {"letters": words}, "has no words"),
        ("short", {"words": words[1:]}, "words needs an array of (32,), got (31,)"),
        ("none", {}, "no such file"),
    ):
        file = tmp_path / f"{name}.npz"
        if given:
            np.savez(file, **given)
        done = _run(exported, tmp_path / "lock", "", "--inputs", str(file))
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"{file}: {message}"


def test_inputs_of_ones_own_are_checked_by_references(exported: Path, tmp_path: Path) -> None:
    """Outputs are compared with those of the exported inputs only."""
    np.savez(tmp_path / "zeros.npz", words=np.zeros(32, np.int64))
    given = ("--inputs", str(tmp_path / "zeros.npz"))
    done = _run(exported, tmp_path / "lock", "", *given, "--check", "--outputs", str(tmp_path / "made" / "outputs.npz"))
    assert done.returncode == 0, done.stderr
    assert "checked" not in json.loads(done.stdout.splitlines()[-1])
    assert (tmp_path / "made" / "outputs.npz").exists()
    assert _run(exported, tmp_path / "lock", "wrong", *given, "--check").returncode == driver.WRONG
    assert "--inputs FILE" in _run(exported, tmp_path / "lock", "", "--help").stdout


def test_programs_of_one_call_are_one_elf(found: Composition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allo's programs are devices of one module; only a rearrangement on the host ends a call."""
    monkeypatch.setenv("AIECC", f"{sys.executable} -c \"import shutil; shutil.copy('network.mlir', 'network.elf')\"")
    one, device = compose(found.fronts, runtime="sequence"), NpuDevice.of(found.fronts.device)
    assert one.exported
    assert one.latency_us < found.latency_us
    calls = [run.call for launch in one.launches for run in launch.runs]
    assert calls == [*([0] * (len(calls) - 1)), 1]
    export(one, tmp_path)
    done = _run(tmp_path, tmp_path / "lock")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["checked"] is True
    assert len(said["calls_us"]) == 2
    module = (tmp_path / "network.mlir").read_text()
    assert module.count("aie.device(npu1)") == 1 + len({run.design for launch in one.launches for run in launch.runs})
    facts = json.loads((tmp_path / "network.json").read_text())
    # The driver's steps in turn: calls, configurations, programs without the overhead of calls of their own, the host.
    programs = sum(run["latency_us"] - device.launch_us for launch in facts["launches"] for run in launch["runs"])
    configured = len(facts["launches"]) * device.board.relaunch_us
    takes = 2 * device.launch_us + configured + programs + sum(one.moves_us.values())
    assert facts["latency_us"] == pytest.approx(takes, abs=1)


def test_the_driver_needs_nothing_of_this_package(exported: Path) -> None:
    for file in (exported / "run.py", *exported.glob("host_*.py")):
        tree = ast.parse(file.read_text())
        names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        assert not [name for name in names if name.startswith("allo_dse")]


@pytest.mark.parametrize(
    ("mode", "code", "message"),
    [
        ("wrong", 66, "norm: Y differs in 1 of 1024 elements"),
        ("build fails", 1, "Failed to compile the MLIR-AIE code"),
        ("garbage", 1, "did not say how long it took"),
    ],
)
def test_what_goes_wrong_is_told_apart(exported: Path, tmp_path: Path, mode: str, code: int, message: str) -> None:
    done = _run(exported, tmp_path / "lock", mode)
    assert done.returncode == code
    assert message in done.stderr


def test_a_design_that_allo_refuses_and_outputs_that_differ_are_named(
    found: Composition, exported: Path, tmp_path: Path
) -> None:
    export(found, tmp_path)
    expected = dict(np.load(tmp_path / "expected.npz"))
    expected["down.result"][3, 4] += 2 * np.abs(expected["down.result"]).max()
    np.savez(tmp_path / "expected.npz", **expected)
    done = _run(tmp_path, tmp_path / "lock")
    assert done.returncode == 66
    assert "output down.result is" in done.stderr
    expected = dict(np.load(exported / "expected.npz"))["down.result"]
    limit = dict(np.load(tmp_path / "limits.npz"))["down.result"]
    assert (np.abs(found.run(dict(np.load(tmp_path / "inputs.npz")))["down.result"] - expected) < 0.6 * limit).all()
    at = np.unravel_index(int(np.argmin(limit)), limit.shape)
    assert 2 * limit[at] < 0.7 * limit.max()  # what is allowed elsewhere is not here
    expected[at] += 2 * limit[at]
    np.savez(tmp_path / "expected.npz", **{"down.result": expected})
    done = _run(tmp_path, tmp_path / "lock")
    assert done.returncode == 66
    assert f"off at {[int(one) for one in at]}, where" in done.stderr
    assert "1 of 1024 elements differ" in done.stderr
    mapping = next(tmp_path.glob("launch_*/gemm_*/mapping.py"))
    mapping.write_text("def mapping_primitives():\n    return [('chain', ['nobody', 'nothing'])]\n")
    done = _run(tmp_path, tmp_path / "lock", "", "--build-only")
    assert done.returncode == 65
    assert "Node(nobody) not found" in done.stderr


def test_equal_infinities_do_not_differ_and_allow_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HERE", tmp_path)
    mask = np.array([-np.inf, 2.0, -4.0], np.float32)
    np.savez(tmp_path / "expected.npz", mask=mask)
    for other, off in ((mask, 0), (mask + np.float32(1), 0.25), (np.nan_to_num(mask), np.inf), (-mask, np.inf)):
        assert difference(other, mask) == off
        if np.isinf(off):
            with pytest.raises(driver.WrongResults, match="output mask is inf off"):
                driver._checked({"mask": 1.0}, {"mask": other})
        else:
            assert driver._checked({"mask": 1.0}, {"mask": other})["differences"] == {"mask": off}
    narrow = driver._converted({"name": "mask", "dtype": "bfloat16", "rounding": 2**-8}, mask)
    np.testing.assert_array_equal(narrow.astype(np.float32), mask)


def test_what_is_not_timed_has_no_time() -> None:
    run = {"step": "up", "latency_us": None, "predicted_us": 3.0}
    said = driver._said({"latency_us": None, "launches": [{"launch": 0, "latency_us": None, "runs": [run]}]})
    assert said == ["launch 0: not timed", "  up: not timed (3.0 predicted)"]


def test_what_cannot_be_exported_is_refused(found: Composition, tmp_path: Path) -> None:
    network = found.fronts.network
    hidden = Host("embed", lambda table, words: table[words.astype(int)])
    computes = Arrange(lambda one: one.T + 1, False)
    for place, work, message in (
        (0, hidden, "what it computes is not a function"),
        (4, computes, "is no rearrangement"),
    ):
        steps = [replace(step, work=work) if at == place else step for at, step in enumerate(network.steps)]
        other = replace(found, fronts=replace(found.fronts, network=replace(network, steps=steps)))
        with pytest.raises(dse.StudyError, match=message):
            export(other, tmp_path)


def test_what_the_host_does_of_a_model_comes_along(tmp_path: Path) -> None:
    """And an input that is an output, too."""
    w = Writer()
    words = w("Cast", "x", to=TensorProto.INT64)
    model = w.model(w("Relu", w("Gather", w.weight(4, 32), words)), (8,))
    model.graph.output.extend(model.graph.input)
    x = np.arange(8, dtype=np.float32) % 4
    expected, _ = ReferenceEvaluator(model).run(None, {"x": x})
    network = dse.from_onnx(model)
    output, _ = network.outputs
    np.testing.assert_array_equal(network.run({"x": x}, simulated=False)[output], expected)
    made = compose(search_fronts(network, "npu1_1col", trials=1, cache=tmp_path / "cache"))
    export(made, tmp_path / "built", {"x": x})
    assert json.loads(_run(tmp_path / "built", tmp_path / "lock").stdout.splitlines()[-1])["checked"] is True
