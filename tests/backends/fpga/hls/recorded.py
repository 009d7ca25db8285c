"""Programs that other tests run in the simulator, with their arguments before and after."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.eval.execute import run


@dataclass
class Recorded:
    """One run.

    Attributes:
        name: the test's, and a number.
    """

    name: str
    program: CompiledProgram
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def record(module: str) -> list[Recorded]:
    """Call the test functions of a module that need no arguments; what they run unfolded is recorded."""
    found: list[Recorded] = []
    original = run.run_graph
    with pytest.MonkeyPatch.context() as patch:
        tests = importlib.import_module(module)
        support = importlib.import_module("tests.compiler.execute")
        for name, test in inspect.getmembers(tests, inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(test).parameters and not _skipped(test):
                watched = _watched(original, name, found)
                for place in (run, support, tests):
                    if hasattr(place, "run_graph"):
                        patch.setattr(place, "run_graph", watched)
                test()
    return [run for run in found if _is_plain(run.program)]


def _skipped(test: Callable[..., Any]) -> bool:
    return any(mark.name.startswith("skip") for mark in getattr(test, "pytestmark", []))


def _watched(original: Callable[..., Any], name: str, found: list[Recorded]) -> Callable[..., Any]:
    def run_graph(vmg: Any, *arrays: Any, **options: Any) -> Any:
        before = tuple(_copies(arrays))
        result = original(vmg, *arrays, **options)
        if vmg.node_count == vmg.task_count:
            found.append(Recorded(f"{name}_{len(found)}", vmg.program, before, tuple(_copies(arrays))))
        return result

    return run_graph


def _copies(arrays: tuple[Any, ...]) -> Iterator[Any]:
    for array in arrays:
        yield np.array(array, copy=True) if isinstance(array, np.ndarray) else array


def _is_plain(program: CompiledProgram) -> bool:
    """Whether one run from the initial state says everything, and all code is there."""
    return not any(cls.state or cls.externals for kernel in program.kernels for cls in kernel.classes)
