"""The rules of target "allo" say what Allo said.

`tests/data/allo_verdicts.json` holds designs of the studies and what Allo itself (the commit that the file names, run
up to the vendor's tools) made of them.
"""

from __future__ import annotations

import importlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import Program, load_program

install()

import allo.ir.types

DESIGNS = json.loads((Path(__file__).parents[3] / "data" / "allo_verdicts.json").read_text())["designs"]
VERDICTS: dict[str, frozenset[str]] = {}
LATER = {"core_locks", "program_memory"}
"""What Allo does not look at: its vendor's tools refuse it."""
CORE_BYTES, STACK_BYTES = 65536, 1024
"""Data memory of a core, and mlir-aie's stack in it."""


@lru_cache(maxsize=64)
def _program(study: str, function: str, params: str) -> Program:
    given = {
        name: getattr(allo.ir.types, value) if isinstance(value, str) else value
        for name, value in json.loads(params).items()
    }
    return load_program(getattr(importlib.import_module(f"studies.{study}"), function), **given)


def _refused(study: str, design: dict[str, Any]) -> frozenset[str]:
    """What the rules say, once for every design."""
    key = json.dumps((study, design))
    if key not in VERDICTS:
        VERDICTS[key] = _check(study, design)
    return VERDICTS[key]


def _check(study: str, design: dict[str, Any]) -> frozenset[str]:
    program = _program(study, design["program"], json.dumps(design["params"]))
    kernels = tuple(
        KernelFold(kernel, tuple(AxisFold(*axis) for axis in axes), tuple(order))
        for kernel, axes, order in design["fold"]
    )
    fold = MeshFold(kernels, tuple(map(tuple, design.get("chains", ()))))
    found = ALLO.check(NpuMapping(program.vmg.fold(fold), NpuDevice.load(design["device"])))
    return frozenset(violation.constraint for violation in found)


def _fits(design: dict[str, Any]) -> bool:
    """Whether Allo accepts it, and the program that it makes has room in the cores' memory."""
    return bool(design["accepted"]) and design["core_bytes"] + STACK_BYTES <= CORE_BYTES


@pytest.mark.parametrize("study", sorted(DESIGNS))
def test_what_is_called_buildable_is_what_allo_accepts(study: str) -> None:
    for design in DESIGNS[study]:
        assert _refused(study, design) or design["accepted"], f"Allo refuses what is called buildable: {design}"


def test_what_is_called_buildable_is_what_fits() -> None:
    """The data have up to two designs of every kind, so that what is wrong weighs more in them than among all."""
    verdicts = [(_refused(study, design), _fits(design)) for study, designs in DESIGNS.items() for design in designs]
    called = [fits for names, fits in verdicts if not names]
    built = [names for names, fits in verdicts if fits and not names & LATER]
    assert called.count(True) >= 0.95 * len(called)
    assert built.count(frozenset()) >= 0.9 * len(built)


def test_the_data_show_both_verdicts() -> None:
    for designs in DESIGNS.values():
        assert {design["accepted"] for design in designs} == {True, False}


def test_the_data_show_every_rule_about_folded_graphs() -> None:
    seen = {name for study, designs in DESIGNS.items() for design in designs for name in _refused(study, design)}
    assert seen >= {
        "allo_transfers",
        "allo_requests",
        "allo_rolled_streams",
        "allo_chained_loops",
        "allo_placement",
        "allo_stream_layout",
    }
