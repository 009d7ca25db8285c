"""Garbage collection during a run."""

from __future__ import annotations

import gc

import pytest

from allo_dse.common.processes import no_collections, rare_collections


@pytest.fixture(autouse=True)
def _as_before() -> object:
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    gc.enable()
    yield
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)


def test_what_is_read_is_not_looked_at_then_or_later() -> None:
    with rare_collections():
        with no_collections():
            assert not gc.isenabled()
            read: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert not any(one is read[-1] for one in gc.get_objects())
    assert any(one is read[-1] for one in gc.get_objects())


def test_what_fails_leaves_collections_as_they_were() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), rare_collections(), no_collections():
        raise KeyError
    assert gc.isenabled()
    assert gc.get_threshold() == before
    gc.disable()
    with no_collections():
        pass
    assert not gc.isenabled()
