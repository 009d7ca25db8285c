"""Networks on an FPGA: hardware for each operator in one configuration, and the project that makes it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.records import replace
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.networks.compose import Composition, compose, compositions
from allo_dse.networks.edges import edges_of
from allo_dse.networks.export.export import export
from allo_dse.networks.fronts import Fronts, search_fronts
from allo_dse.networks.launches import Launch
from allo_dse.networks.network import Arrange, with_rows
from allo_dse.networks.operators import binary_work, element_type, gemm_work, gemv_work, rms_norm_work, unary_work
from allo_dse.networks.solver.problem import ticks

MOST_TOKENS_US = 3 * 64 / 300
"""To hear of all tiles of a tensor, at most 64, at 300 MHz."""
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Fronts:
    """Two products that are alike and could run at once, what follows each, and their sum turned around."""
    element, rng = element_type("bf16"), np.random.default_rng(0)
    net = dse.Network("pair")
    x = net.input("x", (32, 32))
    left, right = (net.constant(n, rng.standard_normal((32, 32)).astype(np.float32)) for n in ("left", "right"))
    a, b = (net.add(gemm_work(32, 32, 32, element), x, w, name=f"by_{w}") for w in (left, right))
    a = net.add(Arrange(np.transpose, False), net.add(unary_work("relu", 1024, element), a, shape=(32, 32)))
    net.output(net.add(gemm_work(32, 32, 32, element), a, b, name="both"))
    return search_fronts(net, "u280", trials=2, cache=tmp_path_factory.mktemp("cache"))


def _check(found: Composition) -> None:
    """All is in one configuration, whose designs fit the device together."""
    device = found.fronts.device
    assert isinstance(device, FpgaDevice)
    (launch,) = found.launches
    for name in RESOURCES:
        assert launch.resources[name] <= device.limit(name)
        taken = sum(run.point.resources[name] for run in launch.designs.values())
        assert launch.resources[name] == taken - launch.saved.get(name, 0)
    assert found.gap == 0


def test_matrices_that_a_bitstream_cannot_hold_become_parts_of_one_size() -> None:
    """Sums over parts in depth are added up; where the bitstream has all matrices they stay whole."""
    net, rng = dse.Network("chain"), np.random.default_rng(0)
    last = net.input("x", (1024,))
    for rows, depth in ((512, 1024), (1536, 512)):
        matrix = net.constant(f"m{rows}", rng.standard_normal((rows, depth)).astype(np.float32))
        last = net.add(gemv_work(rows, depth, element_type("f32")), matrix, last, name=f"by_{matrix}")
    net.output(last)
    given = {"x": rng.standard_normal(1024).astype(np.float32)}
    expected = net.run(given, simulated=False)[last]
    blocks = ((0, {(512, 32): 5}), (1 << 30, {(1024, 64): 1, (512, 192): 1}))  # depth, and columns of a block
    for bits, products in blocks:
        made = with_rows(net, ports=32, bits=bits)
        found = Counter((w.params["K"], w.params["N"]) for _, w in made.worked if w.kind == "gemm")
        assert found == products
        found_values = made.run(given, simulated=False)[last]
        assert float(np.abs(np.subtract(found_values, expected)).max()) < 1e-3 * float(np.abs(expected).max())


def test_operators_that_are_alike_share_hardware_or_have_their_own(fronts: Fronts) -> None:
    """At once for the least latency; for a stream on as many pieces as the resources give."""
    fast, stream = compose(fronts), compose(fronts, stream=True)
    for found in (fast, stream):
        _check(found)
    assert fast.latency_us <= stream.latency_us
    assert stream.inputs_per_s(1000) >= fast.inputs_per_s(1000)
    runs = {run.step.name: run for launch in fast.launches for run in launch.runs}
    assert any("by_left" in name for name in runs)
    few = compositions(fronts)[0]
    _check(few)
    assert few.latency_us >= fast.latency_us
    assert len(few.launches[0].designs) <= len(few.launches[0].runs)


def test_what_does_not_fit_is_refused(fronts: Fronts) -> None:
    with pytest.raises(dse.StudyError, match="within"):
        compose(fronts, share=1e-6)


@needs_gcc
def test_the_project_computes_what_the_network_does(fronts: Fronts, tmp_path: Path) -> None:
    found = compose(_with_tables(fronts))
    export(found, tmp_path)
    done = subprocess.run(
        [sys.executable, "run.py", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["checked"] is True
    assert said["latency_us"] is None  # C simulation says no time
    assert 0 < said["differences"]["both.result"] < 0.05
    kernels = list(found.launches[0].designs)
    assert all(f"nk={name}:1:{name}_1" in (tmp_path / "network.cfg").read_text() for name in kernels)
    for name in kernels:
        assert f'extern "C" void {name}(' in (tmp_path / "launch_0" / name / "hls/kernel.h").read_text()
    expected = dict(np.load(tmp_path / "expected.npz"))
    np.savez(tmp_path / "expected.npz", **{name: one + np.abs(one).max() for name, one in expected.items()})
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 66
    assert "output both.result is" in done.stderr


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Fronts:
    """A norm, a product and a sum with what the norm read."""
    element, net = element_type("bf16"), dse.Network("chain")
    x, up, weights = net.input("x", (32, 64)), net.input("up", (64, 64)), net.input("weights", (64,))
    a = net.add(rms_norm_work(32, 64, 1e-5, element), x, weights, name="norm")
    a = net.add(gemm_work(32, 64, 64, element), a, up, name="product")
    net.output(net.add(binary_work("add", 2048, element), a, x, name="sum", shape=(32, 64)))
    return search_fronts(net, "u280", trials=6, cache=tmp_path_factory.mktemp("cache"))


def test_a_stream_starts_late_enough_and_saves_ports(chain: Fronts) -> None:
    """Between neighbours of which one reads what the other writes; the memory that receives it is no block RAM."""
    edges = edges_of(chain)
    ends = {(chain.candidates[e.source].step.name, chain.candidates[e.target].step.name) for e in edges}
    assert {("norm", "product+sum")} <= ends <= {("norm", "product"), ("product", "sum"), ("norm", "product+sum")}
    for edge in edges:
        assert edge.saves[RESOURCES.index("bram18") + 1] > 0 > edge.saves[RESOURCES.index("uram") + 1]
        points = chain.points[chain.candidates[edge.source].key]
        for point, lags in zip(points, edge.lags, strict=True):
            assert all(lag is None or 0 < lag <= ticks(point.latency_us + MOST_TOKENS_US) for lag in lags)


def test_words_of_two_elements_are_the_widest_that_help(chain: Fronts) -> None:
    """Without lanes, memories have two ports: wider words bring nothing sooner, narrower ones take longer."""
    slower = 0
    for point in (point for points in chain.points.values() for point in points):
        metrics = {}
        for width in (1, 2, 4, 8):
            own = point.design.design
            schedule = [replace(d, options={"bits": 16 * width}) if d.kind == "pack" else d for d in own.schedule]
            one_by_one = tuple(d for d in schedule if d.kind != "lanes")
            metrics[width] = FpgaSimulator().evaluate(replace(own, schedule=one_by_one))
        for wide in (4, 8):
            assert metrics[wide]["latency_us"] >= metrics[2]["latency_us"]
            assert all(metrics[wide][name] >= metrics[2][name] for name in RESOURCES)
        assert metrics[1]["latency_us"] >= metrics[2]["latency_us"]
        slower += metrics[1]["latency_us"] > metrics[2]["latency_us"]
    assert slower > len(chain.points)


@needs_gcc
def test_operators_with_hardware_of_their_own_stream(
    chain: Fronts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where block RAM is short; and the project with streams computes what the network does."""
    monkeypatch.setenv("CXXFLAGS", "-O0")  # half the time of the compiler
    shares = (share / 100 for share in range(30, 4, -1))
    found = next(one for one in (compose(chain, share=share) for share in shares) if one.streamed)
    assert found.gap == 0
    (launch,) = found.launches
    export(found, tmp_path)
    facts = json.loads((tmp_path / "network.json").read_text())
    linked = (tmp_path / "network.cfg").read_text().splitlines()
    for stream, (source, target) in zip(facts["launches"][0]["streams"], launch.streams.values(), strict=True):
        assert (stream["from"], stream["to"]) == (source.step.name, target.step.name)
        assert source.start_us < target.start_us
        sent, received = (
            next(own for own, name in run.streams.items() if name == stream["tensor"]) for run in (source, target)
        )
        assert f"sc={source.design}_1.{sent}:{target.design}_1.{received}" in linked
        assert not any(line.startswith(f"sp={source.design}_1.{sent}:") for line in linked)
        assert source.dram_bytes < source.point.dram_bytes
        assert target.dram_bytes < target.point.dram_bytes
    assert sum(line.startswith("sc=") for line in linked) == len(launch.streams) > 0
    assert f"streams: {found.streamed}" in (tmp_path / "network.html").read_text()
    done = subprocess.run(
        [sys.executable, "run.py", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["checked"] is True
    assert 0 < said["differences"]["sum.result"] < 0.05
    kernel = tmp_path / "launch_0" / next(iter(launch.streams.values()))[1].design / "hls"
    assert not list(kernel.glob("data/golden/*"))
    subprocess.run(["make", "-s", "csim_full"], cwd=kernel, check=True, capture_output=True, timeout=300)
    _check_on_card(launch, tmp_path)


HOST = """\
#!{python}
import json, pathlib, shutil, subprocess, time
for passed in {received!r}.values():
    pathlib.Path(passed + ".asked").touch()
for passed in {sent!r}.values():
    while not pathlib.Path(passed + ".asked").exists():
        time.sleep(0.01)
for file, passed in {received!r}.items():
    while not pathlib.Path(passed).exists():
        time.sleep(0.01)
    shutil.copy(passed, f"run/{{file}}.bin")
subprocess.run(["./testbench", "run"], check=True)
for file, passed in {sent!r}.items():
    shutil.copy(f"run/{{file}}.bin", passed + ".part")
    pathlib.Path(passed + ".part").rename(passed)
print(json.dumps({{"latency_us": 5.0}}))
"""
"""For a host program: the kernel in C simulation, which sends when somebody receives."""


def _check_on_card(launch: Launch, folder: Path) -> None:
    """Kernels that stream to each other are called at once, without what streams."""
    for name, run in launch.designs.items():
        passed = {own: str(folder / tensor) for own, tensor in run.streams.items()}
        received = {own: path for own, path in passed.items() if run.streams[own] != run.step.output}
        sent = {own: path for own, path in passed.items() if own not in received}
        place = folder / "launch_0" / name / "hls"
        (place / "host").write_text(HOST.format(python=sys.executable, received=received, sent=sent))
        (place / "host").chmod(0o755)
        shutil.rmtree(place / "run")
    done = subprocess.run(
        [sys.executable, "run.py", "--json", "--xclbin", "none"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert 0 < said["differences"]["sum.result"] < 0.05
    assert said["latency_us"] == 5.0 * (len(launch.runs) - len(launch.streams))


def test_weights_stay_in_dram_or_are_tables(fronts: Fronts) -> None:
    """Matrices come tile by tile, so that no operator needs memory for a whole one, or are in the bitstream."""
    for points in fronts.points.values():
        for point in points:
            mapping = FpgaMapping.of(point.design.design)
            tables = {mapping.vmg.program.tensors[at].name for at in point.tables}
            assert set(mapping.streamed) == {tensor.name for tensor in mapping.vmg.program.tensors} - tables
            assert point.dram_bytes == mapping.dram_bytes


def test_operators_with_other_constants_have_tables_of_their_own(fronts: Fronts) -> None:
    """Equal operators without tables share hardware; with tables of other constants they do not."""
    assert any(one.copy == 0 and "by_right" in one.names for one in fronts.candidates if not one.tables)
    found = compose(_with_tables(fronts))
    _check(found)
    assert {name for run in found.runs for name in run.constants.values()} == {"left", "right"}
    by_left, by_right = (run for run in found.runs if run.constants)
    assert by_left.design != by_right.design
    assert "2 constants in the bitstream" in found.where


def _with_tables(fronts: Fronts) -> Fronts:
    """Designs with constants in the bitstream for all operators that have some."""
    known = {one.names for one in fronts.candidates if one.tables}
    own = tuple(one for one in fronts.candidates if one.tables or one.names not in known)
    return replace(fronts, candidates=own)
