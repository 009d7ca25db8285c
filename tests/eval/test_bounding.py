"""Bounds hold for the evaluator that states them, and for nothing made of it."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest

from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.eval.evaluator import bounding_of

from ..support.values import present


class Slower(NpuSimulator):
    def evaluate(self, design: Any) -> Any:
        return super().evaluate(design)


class Delegates:
    def __init__(self) -> None:
        self._inner = NpuSimulator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class States(Slower):
    def bounding(self) -> Any:
        return super().bounding()


def _patched() -> NpuSimulator:
    simulator = NpuSimulator()
    simulator.evaluate = lambda design: None  # type: ignore[method-assign, assignment, return-value]
    return simulator


def test_evaluators_that_state_bounds_have_them() -> None:
    for evaluator in (NpuSimulator(), FpgaSimulator(), FpgaSimulator(depths="declared"), States()):
        assert present(bounding_of(evaluator)).levels


@pytest.mark.parametrize("make", [Slower, Delegates, _patched])
def test_what_is_made_of_an_evaluator_has_none(make: Any) -> None:
    assert bounding_of(make()) is None


def test_a_class_whose_function_is_replaced_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    @wraps(NpuSimulator.evaluate)
    def evaluate(self: Any, design: Any) -> Any:
        return None

    monkeypatch.setattr(NpuSimulator, "evaluate", evaluate)
    assert bounding_of(NpuSimulator()) is None
