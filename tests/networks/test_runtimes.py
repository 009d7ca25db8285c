"""Predicted times of networks under each runtime: they are those of the driver that is exported."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.device.device import NpuDevice
from allo_dse.networks.compose import Composition, compose
from allo_dse.networks.export.export import facts_of
from allo_dse.networks.fronts import search_fronts
from allo_dse.networks.network import Arrange, Host
from allo_dse.networks.operators import element_type, gemm_work, unary_work

SIZE = 64
KINDS = st.sampled_from(["gemm", "relu", "host", "turned"])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def _network(kinds: list[tuple[str, int]]) -> dse.Network:
    """Steps that each read the result of an earlier one, so many before the last."""
    element, net = element_type("bf16"), dse.Network("random")
    tensors = [net.input("x", (SIZE, SIZE))]
    weights = net.constant("weights", np.ones((SIZE, SIZE), np.float32))
    for kind, back in kinds:
        source = tensors[max(0, len(tensors) - 1 - back)]
        if kind == "gemm":
            made = net.add(gemm_work(SIZE, SIZE, SIZE, element), source, weights)
        elif kind == "relu":
            made = net.add(unary_work("relu", SIZE * SIZE, element), source, shape=(SIZE, SIZE))
        elif kind == "host":
            made = net.add(Host("sort", np.sort, flops=1e6, bytes=4 * SIZE * SIZE), source, shape=(SIZE, SIZE))
        else:
            made = net.add(Arrange(np.transpose, False), source, shape=(SIZE, SIZE))
        tensors.append(made)
    net.output(*tensors[-2:])
    return net


def _driver_us(found: Composition) -> float:
    """The time of the steps of the driver in turn, from the file that it reads: as `driver.py` groups them."""
    device = NpuDevice.of(found.fronts.device)
    launches = facts_of(found)["launches"]
    runs = [run for launch in launches for run in launch["runs"]]
    hosts = sum(found.moves_us.values())
    if found.runtime != "sequence":
        configuring = {"calls": device.board.reconfigure_us, "packets": device.board.control_packets_us}
        return hosts + sum(float(run["latency_us"]) + configuring[found.runtime] for run in runs)
    programs = sum(float(run["latency_us"]) - device.launch_us for run in runs)
    configured = [key for key, _ in groupby(runs, lambda run: (run["call"], run["design"]))]
    alone = len({run["design"] for run in runs}) == 1  # the firmware does not load a device that is there
    calls = {run["call"] for run in runs}
    begins = (0 if alone else len(configured)) * device.board.relaunch_us
    return hosts + programs + len(calls) * device.launch_us + begins


@settings(max_examples=12, deadline=None)
@given(kinds=st.lists(st.tuples(KINDS, st.integers(0, 1)), max_size=5))
def test_the_headline_is_the_time_of_the_driver(kinds: list[tuple[str, int]], cache: Path) -> None:
    fronts = search_fronts(_network([("gemm", 0), *kinds]), "npu1_2col", trials=2, cache=cache)
    for runtime in ("calls", "packets", "sequence", "launches"):
        found = compose(fronts, runtime=runtime)
        assert sum(found.time_us.values()) == pytest.approx(found.latency_us, rel=1e-3)
        assert found.bound_us <= found.latency_us + 0.1
        if runtime != "launches":
            assert found.latency_us == pytest.approx(_driver_us(found), rel=0.005)  # times are rounded
            assert found.time_us.get("operators on the host", 0) == pytest.approx(sum(found.host_us.values()), abs=0.2)


def test_each_call_of_launches_pays_for_itself(cache: Path) -> None:
    """The host sorts between two launches: the second is another call, whose overhead is the host's."""
    fronts = search_fronts(_network([("gemm", 0), ("host", 0), ("gemm", 0)]), "npu1_2col", trials=2, cache=cache)
    found = compose(fronts, runtime="launches")
    device = NpuDevice.of(fronts.device)
    assert [run.call for launch in found.launches for run in launch.runs] == [0, 1]
    assert found.time_us["host"] >= 2 * device.launch_us
    assert found.time_us.get("layouts", 0) < 1  # ticks are rounded
