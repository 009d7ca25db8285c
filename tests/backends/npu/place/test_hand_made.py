"""The mappings that experts write by hand can be placed on their devices, and drawn."""

from __future__ import annotations

import importlib

import pytest

import allo_dse as dse
from allo_dse.lang import install

from .independent_check import verify_placement

install()

from studies.hand_made import HAND_MADE


@pytest.mark.parametrize("name", HAND_MADE)
def test_a_hand_made_mapping_is_placed(name: str) -> None:
    design = HAND_MADE[name].design(importlib.import_module(f"studies.{name}").study())
    placed = dse.place(design)
    assert isinstance(placed, dse.PlacedDesign), str(placed)
    assert verify_placement(placed) == []
    assert len(placed.tiles) == design.vmg.node_count
    assert f"on {design.device.name}" in dse.draw(placed)
    assert f"on {design.vmg.node_count} nodes" in dse.draw(design)
