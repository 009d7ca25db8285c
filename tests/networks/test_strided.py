"""Operators that read in another order what lies in DRAM: chosen where that is the fastest, and the same results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.networks.compose import Composition, compose
from allo_dse.networks.export.export import export
from allo_dse.networks.export.page import page_html
from allo_dse.networks.fronts import Fronts, search_fronts
from allo_dse.networks.network import Arrange, Array
from allo_dse.networks.operators import element_type, unary_work
from allo_dse.networks.operators.execute import difference
from allo_dse.networks.problem import Calls, called, moved_us, problem_of
from allo_dse.networks.solver.problem import TICK_US
from allo_dse.networks.solver.solve import solve
from allo_dse.networks.strided import with_strided

from .export.test_driver import _run
from .solver.test_solve import shortest

ROWS, COLUMNS = 256, 128


def halves(array: Array) -> Array:
    """The two halves of columns below each other."""
    return np.concatenate(np.split(array, 2, axis=1), axis=0)


@pytest.fixture(scope="module", params=["bf16", "f32"])
def fronts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fronts:
    """A function of what is given, in halves; one of that turned around; and one of what is padded."""
    element, shape = element_type(request.param), (2 * ROWS, COLUMNS // 2)
    net = dse.Network("turns")
    x = net.add(Arrange(halves, False), net.input("x", (ROWS, COLUMNS)), name="halves")
    x = net.add(unary_work("relu", ROWS * COLUMNS, element), x, name="first", shape=shape)
    x = net.add(Arrange(np.transpose, False), x, name="turned")
    net.output(net.add(unary_work("relu", ROWS * COLUMNS, element), x, name="second"))
    return search_fronts(net, "npu1_2col", trials=4, cache=tmp_path_factory.mktemp("cache"))


def test_what_descriptors_can_walk_is_a_choice_beside_a_pass(fronts: Fronts) -> None:
    found = with_strided(fronts)
    added = [one for one in found.candidates if one not in fronts.candidates]
    # Elements of two bytes are no words: they cannot be turned around on the way.
    words = added[0].writes.bytes == 4
    assert [one.step.name for one in added] == (["first", "second"] if words else ["first"])
    assert [one.step.inputs for one in added] == ([("x",), ("first.result",)] if words else [("x",)])
    board = NpuDevice.of(fronts.device).board
    step = fronts.network.steps[0]
    for own, point in zip(fronts.points[added[0].key], found.points_of(added[0]), strict=True):
        assert point is not None
        assert point.latency_us < own.latency_us + moved_us(fronts.network, step, fronts.device, added[0].writes)
        assert point.transport is not None
        # Each half of a row is a run of its own; the DRAM loses what it loses for runs of that length.
        runs = {t.run_bytes for t in point.transport.transfers if t.direction == "in"}
        assert runs <= {COLUMNS // 2 * added[0].writes.bytes}
        assert board.dram_us(1 << 20, min(runs), False) > board.dram_us(1 << 20, 1 << 20, False)
    assert with_strided(found) == found


def test_the_composition_is_the_shortest_of_all_with_that_choice(fronts: Fronts) -> None:
    device = NpuDevice.of(fronts.device)
    calls = Calls(-device.launch_us, device.launch_us, device.board.relaunch_us)
    problem, without = (called(problem_of(one), calls) for one in (with_strided(fronts), fronts))
    found = solve(problem)
    assert found.length == found.bound == shortest(problem)
    # All run on one design: reading in another order needs no hardware of its own.
    assert len({problem.kinds[o] for o, at in enumerate(found.launch) if at >= 0}) == 1
    assert found.length < solve(without).length
    assert compose(fronts, runtime="launches").latency_us == pytest.approx(found.length * TICK_US)


@pytest.fixture(scope="module")
def found(fronts: Fronts) -> Composition:
    return compose(fronts, runtime="launches")


def test_what_is_read_so_is_not_rearranged(found: Composition) -> None:
    words = found.launches[0].runs[0].writes.bytes == 4
    assert found.strided == "first reads x" + (", second reads first.result" if words else "")
    assert [step.name for step in found.network.steps] == ["first", *([] if words else ["turned"]), "second"]


def test_what_is_read_so_is_computed_and_simulated_so(found: Composition) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    exact = found.fronts.network.run({"x": x}, simulated=False)
    outputs = found.run({"x": x})
    assert all(difference(outputs[name], exact[name]) < 0.01 for name in found.fronts.network.outputs)
    run = found.launches[0].runs[0]
    assert run.step.name == "first"
    device = NpuDevice.of(found.fronts.device)
    alone = replace(found.launches[0], runs=(run,))
    slower = replace(run, point=replace(run.point, transport=None))
    assert alone.simulated_us(device) == pytest.approx(run.point.latency_us - device.launch_us, rel=1e-6)
    assert replace(alone, runs=(slower,)).simulated_us(device) != alone.simulated_us(device)


def test_the_driver_and_the_page_say_and_do_the_same(found: Composition, tmp_path: Path) -> None:
    export(found, tmp_path)
    facts = json.loads((tmp_path / "network.json").read_text())
    run = facts["launches"][0]["runs"][0]
    (strided,) = run["strided"]
    assert (strided["tensor"], strided["reads"]) == ("X", "x")
    words = COLUMNS // 2 * found.launches[0].runs[0].writes.bytes // 4
    assert all(channel["loops"][0] == [words, 1] for channel in strided["channels"])
    done = _run(tmp_path, tmp_path / "lock")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["checked"] is True
    assert set(said["host_us"]) == {step.name for step in found.network.steps} - {"first", "second"}
    assert f"As it lies, in another order: {found.strided}." in page_html(found)
