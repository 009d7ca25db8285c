"""Functions of every element, where they rise and where they are flat, and on an NPU within Allo's rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.networks.operators import element_type, unary_work
from allo_dse.networks.operators.execute import difference, loaded, reference_of, run_program


@pytest.mark.parametrize(("element", "tolerance"), [("f32", 1e-6), ("bf16", 0.01)])
@pytest.mark.parametrize("op", ["relu", "gelu", "silu", "sigmoid", "tanh"])
def test_functions_are_what_numpy_says(op: str, element: str, tolerance: float) -> None:
    work = unary_work(op, 256, element_type(element))
    given = [np.linspace(-100, 100, 256, dtype=np.float32)]
    found = run_program(loaded(work), given)
    assert np.isfinite(found).all()
    with np.errstate(over="ignore"):
        assert difference(found, reference_of(work, given)) < tolerance


@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
def test_they_have_designs(op: str, tmp_path: Path) -> None:
    net = dse.Network("curve")
    net.output(net.add(unary_work(op, 4096, element_type("bf16")), net.input("x", (4096,))))
    (points,) = dse.search_fronts(net, "npu1_1col", trials=2, cache=tmp_path).points.values()
    assert points[0].latency_us > 0
