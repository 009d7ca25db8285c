"""Exported `program.py` files are what Allo's front end reads.

`tests/data/allo_front_end.json` has programs of all studies, of operators of networks and of no study, and what the
front end of the real Allo (the commit that the file names) said to the files exported from them.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.board.program_source import program_files
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.eval.design_folder import write_files
from allo_dse.lang import install
from allo_dse.lang.region import Region, as_region
from allo_dse.mapper.program import load_program
from allo_dse.networks.onnx.convert import load_network

install()

import allo.ir.types

from . import exported_programs

PROGRAMS = json.loads((Path(__file__).parents[3] / "data" / "allo_front_end.json").read_text())["programs"]


def source_of(entry: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function of a program and its parameters: of a module, or of a step of a network."""
    if "network" in entry:
        work = steps_of(entry["network"], tuple(entry["settings"].items()))[entry["step"]]
        return work.program, dict(work.smallest)
    types = {name for name in dir(allo.ir.types) if not name.startswith("_")}
    params = {k: getattr(allo.ir.types, v) if v in types else v for k, v in entry["params"].items()}
    return getattr(importlib.import_module(entry["module"]), entry["program"]), params


@cache
def steps_of(network: str, settings: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    file = Path(__file__).parents[4] / "studies" / "networks" / f"{network}.py"
    return {step.name: work for step, work in load_network(file, dict(settings)).worked}


def exported(entry: dict[str, Any], folder: Path) -> Region:
    """Return the region of an exported program, loaded from its bytes on disk without the project's modules."""
    write_files({**program_files(*source_of(entry), None, {})}, folder)
    hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("tests", "studies")}
    for name in hidden:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("exported", folder / "program.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["exported"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        region = as_region(module.region())
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "studies")]:
            del sys.modules[name]
        sys.modules.update(hidden)
    assert region is not None
    return region


@cache
def names_in_types(file: Path) -> dict[str, set[str]]:
    """Names in the types of each region of a file, without those that are assigned in it."""
    found = {}
    for region in ast.walk(ast.parse(file.read_text())):
        if isinstance(region, ast.FunctionDef) and any(
            "df.region" in ast.unparse(one) for one in region.decorator_list
        ):
            nodes = list(ast.walk(region))
            types = [n.annotation for n in nodes if isinstance(n, ast.arg | ast.AnnAssign) and n.annotation]
            names = {n.id for one in types for n in ast.walk(one) if isinstance(n, ast.Name)}
            assigned = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            found[region.name] = names - assigned
    return found


def seen_by_allo(function: FunctionType) -> set[str]:
    """Names that `allo.ir.utils.get_global_vars` finds: globals, and what Python's closure has."""
    return {*function.__globals__, *function.__code__.co_freevars}


@pytest.mark.parametrize("group", ["study", "operator", "other"])
def test_allo_reads_the_bytes_on_disk(group: str, tmp_path: Path) -> None:
    """Nothing of this package is in them, and names in types are where Allo looks; the rules agree with its verdict."""
    entries = [entry for entry in PROGRAMS if entry["group"] == group]
    assert len(entries) >= 15
    npu = NpuDevice.load("npu2")
    for number, entry in enumerate(entries):
        folder = tmp_path / str(number)
        region = exported(entry, folder)
        text = "".join(file.read_text() for file in folder.rglob("*.py"))
        assert "__future__" not in text, entry
        assert "allo_dse" not in text, entry
        for name, names in names_in_types(folder / "program.py").items():
            if name == region.name:
                assert names <= seen_by_allo(region.function), entry
        if entry["accepted"] and number % 3:
            continue
        program = load_program(region)
        found = ALLO.check_program(NpuMapping(program.vmg, npu))
        refused = [one.detail for one in found if one.constraint == "allo_source"]
        if not entry["accepted"]:
            assert refused, entry
        elif not {"gelu", "layernorm"} & set(str(refused).split("`")):  # the front end takes what later stages refuse
            assert not [one for one in refused if "has no code" not in one], (entry, refused)


def test_what_is_exported_is_the_program(tmp_path: Path) -> None:
    """The same tasks, tensors and streams, whatever had to be left out or written differently."""
    for number, entry in enumerate(e for e in PROGRAMS if e.get("module", "").endswith("exported_programs")):
        original = load_program(getattr(exported_programs, entry["program"]), **entry["params"])
        copied = load_program(exported(entry, tmp_path / str(number)))
        assert [(k.name, k.mesh) for k in copied.kernels] == [(k.name, k.mesh) for k in original.kernels]
        assert [str(t) for t in copied.tensors] == [str(t) for t in original.tensors]
        works = [
            [(op.kind, op.shape, op.dtypes) for cls in one.task_classes for op in cls.work]
            for one in (copied, original)
        ]
        assert works[0] == works[1]


def test_branches_that_parameters_exclude_are_left_out() -> None:
    text = program_files(exported_programs.branches, {"op": "row"}, None, {})["program.py"]
    assert "a @ a" not in text
    assert "with allo.meta_if(True):\n                for i in range(8):" in text
    assert "A: Ty[32], B: Ty[32]" in text
