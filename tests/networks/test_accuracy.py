"""Networks with several element types: the fastest that keep the outputs within a limit, and what is converted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import allo_dse as dse
from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.device.device import Device
from allo_dse.eval.execute.rounding import exactly
from allo_dse.lang.types import DType
from allo_dse.networks import fronts as module
from allo_dse.networks.accuracy import Accuracy, random_inputs
from allo_dse.networks.compose import Composition, compose, compositions
from allo_dse.networks.export.export import export, facts_of
from allo_dse.networks.fronts import Fronts, Point, SearchOptions, search_fronts
from allo_dse.networks.network import Arrange, Convert, Host, Operator
from allo_dse.networks.operators import element_type, gemm_work, rms_norm_work, unary_work
from allo_dse.networks.operators.execute import difference, moved_result
from allo_dse.networks.solver.problem import ticks

from ..support.commands import allo_tune
from .export.test_driver import _run as run_on_stand_in
from .models import Writer

BOTH = element_type("bf16,f32")
BF16, F32 = element_type("bf16"), element_type("f32")


def halved(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the host does."""
    half: NDArray[np.float32] = x * np.float32(0.5)
    return half


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Fronts:
    """Products with a function, a rearrangement and a step of the host between them, each of two types."""
    rng = np.random.default_rng(0)
    net = dse.Network("mixed")
    x = net.input("x", (32, 32))
    first, second, third = (net.constant(n, rng.standard_normal((32, 32)).astype(np.float32)) for n in "abc")
    y = net.add(gemm_work(32, 32, 32, BOTH), x, first, name="up")
    y = net.add(unary_work("gelu", 1024, BOTH), y, name="gelu", shape=(32, 32))
    y = net.add(Arrange(np.transpose, False), y, name="turn")
    z = net.add(gemm_work(32, 32, 32, BOTH), y, second, name="down")
    z = net.add(Host("halve", halved), z, name="halve")
    net.output(net.add(gemm_work(32, 32, 32, BOTH), z, third, name="last"), y)
    return search_fronts(net, "npu1_2col", trials=4, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def inputs(fronts: Fronts) -> dict[str, NDArray[np.generic]]:
    return random_inputs(fronts.network)


def _only(fronts: Fronts, dtype: DType) -> Fronts:
    return replace(fronts, candidates=tuple(one for one in fronts.candidates if one.step.writes == dtype))


def _types_agree(found: Composition) -> None:
    """What a program reads of other programs has its type, whatever was done to the elements in between."""
    runs = {run.step.output: run for launch in found.launches for run in launch.runs}
    types: dict[str, set[str]] = {}
    for step in found.network.steps:
        before = set().union(*(types.get(name, set()) for name in step.inputs))
        if step.output in runs:
            for name, dtype in zip(step.inputs, runs[step.output].step.reads, strict=True):
                assert types.get(name, set()) <= {dtype.name}
            before = {runs[step.output].step.writes.name}
        elif isinstance(step.work, Convert):
            assert before != {step.work.dtype.name}
            before = {step.work.dtype.name}
        elif isinstance(step.work, Host):
            before = set()
        types[step.output] = before


@pytest.fixture(scope="module")
def alone(fronts: Fronts, inputs: dict[str, NDArray[np.generic]]) -> list[Composition]:
    """The fastest of each one type."""
    types = {one.step.writes for one in fronts.candidates}
    return [compose(_only(fronts, dtype), tolerance=1.0, inputs=inputs) for dtype in types]


@settings(max_examples=12, deadline=None)
@given(st.floats(-3.2, -1.5))
def test_the_fastest_within_a_limit(
    fronts: Fronts, inputs: dict[str, NDArray[np.generic]], alone: list[Composition], exponent: float
) -> None:
    """It is within it as its designs compute, and never slower than the fastest of one type that is."""
    limit = 10**exponent
    found = compose(fronts, tolerance=limit, inputs=inputs)
    exact, made = fronts.network.run(inputs, simulated=False), found.run(inputs)
    assert found.deviation == max(difference(made[name], exact[name]) for name in fronts.network.outputs) <= limit
    _types_agree(found)
    for other in alone:
        if other.deviation <= limit:
            assert found.latency_us <= other.latency_us
    # Every wait for a conversion is kept: what reads another type begins no sooner than all elements are written.
    runs = {run.step.output: run for launch in found.launches for run in launch.runs}
    board = fronts.device.board  # type: ignore[attr-defined]
    for step in found.network.steps:
        if isinstance(step.work, Convert):
            readers = [run for run in runs.values() if run.start_us >= runs[step.inputs[0]].end_us]
            took = 0.1 * ticks(1024 * step.work.dtype.bytes / (board.dram_gb_s * 1e3))
            assert min(run.start_us for run in readers) >= runs[step.inputs[0]].end_us + took - 0.2


def test_outputs_that_are_no_numbers_are_within_no_limit(
    fronts: Fronts, inputs: dict[str, NDArray[np.generic]]
) -> None:
    """They were where another output came first; where all were none, and inputs missing, it ended in a traceback."""
    accuracy = Accuracy(fronts, inputs)
    made = {name: accuracy.exact[name] for name in fronts.network.outputs}
    made[fronts.network.outputs[-1]] = np.full((32, 32), np.nan)
    assert accuracy.deviation(made) == np.inf
    none = {name: np.full_like(array, np.nan) for name, array in inputs.items()}
    for given_, said in ((none, "at best they are inf off"), ({}, "input 'x' needs an array of")):
        with pytest.raises(StudyError, match=said):
            compose(fronts, tolerance=0.01, inputs=given_)


def test_a_mixture_is_told_operator_by_operator(fronts: Fronts, inputs: dict[str, NDArray[np.generic]]) -> None:
    effects = Accuracy(fronts, inputs).effects
    largest = max(effects.values())
    found = compose(fronts, runtime="launches", tolerance=0.9 * largest, inputs=inputs)
    types = found.types
    assert set(types.values()) == {"bfloat16", "float32"}
    facts = facts_of(found)
    runs = [run for launch in facts["launches"] for run in launch["runs"]]
    assert {run["step"]: run["element"] for run in runs} == types
    assert facts["accuracy"] == {"deviation": float(f"{found.deviation:.4g}"), "limit": 0.9 * largest}
    assert re.sub(r"\d[\d.e-]*(?= off| allowed)", "N", found.in_words) == MIXTURE
    assert "effects on the outputs add up to at most" in found.certificate


MIXTURE = "outputs N off (N allowed) as the designs compute them: float32 for 2 operators; bfloat16 for up+gelu"


def test_no_limit_takes_the_fastest_and_tells_its_deviation(fronts: Fronts) -> None:
    found, narrow = compose(fronts), compose(_only(fronts, BF16))  # type: ignore[arg-type]
    assert found.latency_us <= narrow.latency_us
    assert 0 < found.deviation < 0.05
    assert narrow.accuracy is None
    assert "accuracy" not in facts_of(narrow)
    assert [one.latency_us for one in compositions(fronts)][-1] == found.latency_us


def test_a_limit_that_no_types_keep_is_refused_with_what_was_reached(fronts: Fronts) -> None:
    with pytest.raises(dse.StudyError, match=r"mixed: no element types keep the outputs within 1e-09.* with float32"):
        compose(fronts, tolerance=1e-9)
    with pytest.raises(dse.StudyError, match=r"bfloat16 for all operators"):
        compose(_only(fronts, BF16), tolerance=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [-0.01, np.inf, np.nan])
def test_a_limit_that_is_none_is_refused(fronts: Fronts, limit: float) -> None:
    """Nothing is within one that is no number, and the most accurate was searched for in vain."""
    for composed in (compose, compositions):
        with pytest.raises(dse.StudyError, match=f"tolerance={limit:g} is no share"):
            composed(fronts, tolerance=limit)


def test_a_type_that_a_device_cannot_do_for_an_operator_is_left_out(tmp_path: Path) -> None:
    net = dse.Network("deep")
    x, w = net.input("x", (16, 4096)), net.constant("w", np.ones(4096, np.float32))
    y = net.add(rms_norm_work(16, 4096, 1e-5, BOTH), x, w, name="norm")
    net.output(net.add(unary_work("relu", 16 * 4096, BOTH), y, name="relu"))
    found = search_fronts(net, "npu1_1col", trials=2, cache=tmp_path)
    kinds = [(one.step.name, one.step.writes.name) for one in found.candidates]
    assert kinds == [("norm", "bfloat16"), ("relu", "bfloat16"), ("relu", "float32")]
    assert compose(found, tolerance=0.02).types["norm"] == "bfloat16"


def test_programs_of_ones_own_in_several_types(tmp_path: Path) -> None:
    """A parameter of types, several works of a step, and a work without a reference, which is compared with float32."""
    net = dse.Network("own")
    gelu = unary_work("gelu", 1024, BF16)
    size = {"N": 1024, "P": dse.divisors(1024, at_least=4, at_most=8)}
    x = net.input("x", (1024,))
    y = net.add(gelu.program, x, params={**size, "Ty": dse.choices([BF16, F32])}, name="open")
    net.output(net.add([unary_work("silu", 1024, BF16), unary_work("silu", 1024, F32)], y, name="either"))
    found = search_fronts(net, "npu1_1col", trials=2, cache=tmp_path)
    assert [one.step.writes.name for one in found.candidates] == ["bfloat16", "float32"] * 2
    assert set(compose(found, tolerance=1e-5).types.values()) == {"float32"}
    assert 1e-4 < compose(found).deviation < 0.02
    assert all(one.ok for one in net.check(random_inputs(net)))


def _two_types(device: str, cache: Path) -> Composition:
    net = dse.Network("pair")
    x, turn = net.input("x", (32, 32)), Arrange(np.transpose, False)
    y = net.add(unary_work("gelu", 1024, F32), x, name="wide", shape=(32, 32))
    z = net.add(unary_work("silu", 1024, BF16), net.add(turn, y, name="turn"), name="narrow")
    net.output(net.add(unary_work("gelu", 1024, F32), z, name="again"), y)
    return compose(search_fronts(net, device, trials=2, cache=cache))


@pytest.mark.parametrize("device", ["npu1_1col", "u280"])
def test_the_driver_converts_and_checks(device: str, tmp_path: Path) -> None:
    if device == "u280" and shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    found, folder = _two_types(device, tmp_path / "cache"), tmp_path / "built"
    _types_agree(found)
    steps = ["wide", "wide as bfloat16", "turn as bfloat16", "narrow", "narrow as float32", "again"]
    assert [step.name for step in found.network.steps] == steps
    export(found, folder)

    def ran() -> subprocess.CompletedProcess[str]:
        if device == "u280":
            command = [sys.executable, "run.py", "--json"]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        return run_on_stand_in(folder, tmp_path / "lock")

    done = ran()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["checked"] is True
    assert {"wide as bfloat16", "narrow as float32"} <= set(said["host_us"])
    assert max(said["differences"].values()) < 0.02
    facts = json.loads((folder / "network.json").read_text())
    (step,) = [step for step in facts["steps"] if step["name"] == "wide as bfloat16"]
    step["dtype"] = "int8"  # the rounding of bfloat16 is not enough for whole numbers
    (folder / "network.json").write_text(json.dumps(facts))
    done = ran()
    assert done.returncode == 66
    assert "wide as bfloat16: " in done.stderr


def test_a_model_of_two_types_through_the_command(tmp_path: Path) -> None:
    w = Writer()
    hidden = w("Relu", w("MatMul", "x", w.weight(32, 64)))
    onnx.save(w.model(w("MatMul", hidden, w.weight(64, 32)), (16, 32)), str(tmp_path / "model.onnx"))
    command = ["network", str(tmp_path / "model.onnx"), "--device", "npu1_1col", "--trials", "3",
               "--cache", str(tmp_path / "cache"), "--set", "element=bf16,f32"]  # fmt: skip
    free = allo_tune(*command, "--json")
    assert free.returncode == 0, free.stderr
    (fastest,) = json.loads(free.stdout)["compositions"]
    limit = f"{0.8 * fastest['accuracy']['deviation']:.6f}"
    done = allo_tune(*command, "--tolerance", limit, "--json", "-o", str(tmp_path / "built"))
    (found,) = json.loads(done.stdout)["compositions"]
    assert found["accuracy"]["limit"] == float(limit)
    assert found["accuracy"]["deviation"] <= float(limit) < fastest["accuracy"]["deviation"]
    assert found["latency_us"] >= fastest["latency_us"]
    assert "float32" in {run["element"] for launch in found["launches"] for run in launch["runs"]}
    assert f"({float(limit):g} allowed)" in (tmp_path / "built" / "network.html").read_text()
    ran = run_on_stand_in(tmp_path / "built", tmp_path / "lock")
    assert ran.returncode == 0, ran.stderr
    said = allo_tune(*command, "--tolerance", limit).stdout
    assert "type" in said.splitlines()[0]
    refused = allo_tune(*command, "--tolerance", "1e-12")
    assert refused.returncode == 2
    assert "no element types keep the outputs within" in refused.stderr


def test_a_step_without_a_design_is_named_where_another_like_it_has_one_in_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow_only(operator: Operator, device: Device, how: SearchOptions) -> Iterator[Point]:
        if operator.work.params["Ty"] == F32:
            raise StudyError("no room")
        return points(operator, device, how)

    points = module._points
    monkeypatch.setattr(module, "_points", narrow_only)
    net = dse.Network("mixed")
    y = net.add(unary_work("gelu", 1024, BOTH), net.input("x", (1024,)), name="either")
    net.output(net.add(unary_work("gelu", 1024, F32), y, name="wide"))
    with pytest.raises(StudyError, match=r"mixed: step 'wide' \(gelu\): no room"):
        search_fronts(net, "npu1_2col", trials=4, cache=tmp_path, host="never")


def test_errors_pass_through_what_the_host_computes() -> None:
    """By how far results move; without a limit where they are undefined beside their arguments."""
    table, ones = np.arange(32.0), np.ones((2, 16))
    off = replace(exactly(ones), rounded=ones + 1e-3, bound=1e-3 * ones, variance=1e-6 * ones)
    total = moved_result(lambda one: one.sum(axis=1), [off])
    np.testing.assert_allclose(total.error, 16e-3, rtol=1e-3)
    assert (np.sqrt(total.variance) >= total.error).all()
    last = replace(exactly(np.full(4, 31.0)), variance=np.full(4, 9.0))
    assert np.isinf(moved_result(lambda one: table[one.astype(int)], [last]).tolerance).all()
    assert not moved_result(lambda one: table[one.astype(int)], [exactly(np.full(4, 31.0))]).variance.any()
