"""What would help a run: known networks, and bounds that hold for any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.whatif import SHARED, twice_as_fast
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from .test_steady import Regular, regular
from .test_steady import network as regular_network


def pipeline(*work: int, rounds: int = 1_000, service: int = 0) -> Network:
    """A chain of processes that work so long per round, the first of which asks for a resource as well."""
    net = NetworkBuilder()
    streams = [net.stream(2) for _ in work[1:]]
    dram = net.resource()
    for place, cycles in enumerate(work):
        table, bound = Table(), []
        with table.repeat(rounds):
            if place == 0 and service:
                table.request(0, service)
            if place:
                table.get(0)
                bound.append(streams[place - 1])
            table.wait(cycles)
            if place < len(work) - 1:
                table.put(len(bound))
                bound.append(streams[place])
        net.process(table, bound, [dram])
    return net.build()


def shares(network: Network, kinds: list[str]) -> dict[str, float]:
    return {faster.name: faster.share for faster in twice_as_fast(network, kinds)}


def test_only_the_slowest_of_a_pipeline_helps_and_then_the_next_one_holds_up() -> None:
    found = shares(pipeline(30, 80, 60), ["a", "b", "c"])
    assert found["b"] == pytest.approx(60 / 80, abs=0.01)
    assert found["a"] == pytest.approx(1, abs=0.01)
    assert found["c"] == pytest.approx(1, abs=0.01)
    assert next(iter(found)) == "b"


def test_elements_of_a_kind_are_faster_together() -> None:
    assert shares(pipeline(80, 80, 20), ["pe", "pe", "store"])["pe"] == pytest.approx(0.5, abs=0.01)


def test_the_service_of_a_resource_is_a_kind_of_its_own() -> None:
    found = shares(pipeline(10, 20, service=50), ["load", "pe"])
    assert found[SHARED] == pytest.approx(35 / 60, abs=0.01)
    assert found["load"] == pytest.approx(55 / 60, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(regular().filter(lambda case: not case.resources))
def test_without_shared_resources_a_run_is_never_shorter_than_half(case: Regular) -> None:
    """With them another order of requests can be better, or worse, than any speed explains."""
    network = regular_network(case)
    result = table_engine().run(network)
    if not result.finished or not result.cycles:
        return
    for faster in twice_as_fast(network, [f"kind {node % 2}" for node in range(network.node_count)]):
        assert 0.5 <= faster.share <= 1


def test_it_ends_at_its_time_limit() -> None:
    with pytest.raises(SimulationError, match="time limit"):
        twice_as_fast(pipeline(30, 80, 60, rounds=200_000), ["a", "b", "c"], seconds=0.0)
