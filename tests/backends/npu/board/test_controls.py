"""Every exported build.py refuses what a wrong device computes, and accepts what a right one does."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from allo_dse.backends.npu.board.folder import FOLDING
from allo_dse.device.device import Device
from allo_dse.eval.backend import Sources
from allo_dse.eval.design_folder import artifacts_of, design_files, write_files
from allo_dse.eval.execute.run import run_graph
from allo_dse.eval.inputs import asked
from allo_dse.eval.reference import as_computable
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design
from tests.eval.test_rounding import STUDIES, of_study
from tests.support.controls import CONTROLS, Array, Control, input_controls

install()

import allo.dataflow

NPU_STUDIES = [name for name in STUDIES if name.endswith("_npu")]
Change = Callable[[list[Array]], list[Array]]


class Module:
    """A stand-in for the module that Allo builds, on a device that may be wrong."""

    def __init__(self, program: Program, before: Change, after: Change) -> None:
        self._program, self._before, self._after = program, before, after

    def __call__(self, *arrays: Array) -> None:
        own = dict(zip((tensor.name for tensor in self._program.tensors), arrays, strict=True))
        names = asked(self._program)
        given = dict(zip(names, self._before([own[name] for name in names]), strict=True))
        run = {name: given.get(name, array).copy() for name, array in own.items()}
        run_graph(self._program.vmg, *run.values())
        results = [name for name in own if name not in names]
        for name, made in zip(results, self._after([run[name] for name in results]), strict=True):
            own[name][...] = made
        os.write(1, b"Avg NPU execution time: 7us\nMin NPU execution time: 6us\n")


def same(arrays: list[Array]) -> list[Array]:
    return arrays


@contextmanager
def exported(name: str, folder: Path) -> Iterator[ModuleType]:
    study = of_study(name)
    made = Design(study.program, unfolded(study.program), Buffering(), Device.load("npu2"))
    files = design_files(made, artifacts_of(made, Sources(study.reference)))
    del files[FOLDING]
    write_files(files, folder)
    spec = importlib.util.spec_from_file_location("exported_build", folder / "build.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.__dict__["LOCK"] = folder / "lock"
    yield script


@pytest.mark.parametrize("name", NPU_STUDIES)
def test_wrong_devices_are_refused_by_exported_scripts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    study = of_study(name)
    monkeypatch.setattr(sys, "argv", ["build.py", "--json", "--repetitions", "1"])
    with exported(name, tmp_path) as script:

        def code(before: Change = same, after: Change = same) -> int:
            module = Module(study.program, before, after)
            monkeypatch.setattr(allo.dataflow, "build", lambda *_, **__: module, raising=False)
            return int(script.main())

        assert code() == 0, capfd.readouterr().err
        said = json.loads(capfd.readouterr().out.splitlines()[-1])
        assert said["checked"]
        for error in said.get("errors", {}).values():
            assert error["largest"] <= error["allowed"]
            assert len(error["at"]) >= 1
        for control, change in CONTROLS.items():
            assert code(after=partial(_each, change)) == script.WRONG, control
        tensors = json.loads((tmp_path / "design.json").read_text())["allo"]["tensors"]
        arrays = script.make_arrays(tensors, 0)
        given = [arrays[name] for name in asked(study.program)]
        for control, other in input_controls(given):
            if _matters(study.reference, given, other):
                assert code(before=other) == script.WRONG, control


def _each(change: Control, arrays: list[Array]) -> list[Array]:
    return [change(one) for one in arrays]


def _matters(reference: Callable[..., Any], given: list[Array], change: Change) -> bool:
    before, after = (np.asarray(reference(*map(as_computable, one))) for one in (given, change(given)))
    return not np.allclose(before, after, rtol=1e-5)


def test_a_damaged_archive_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", "--repetitions", "1"])
    with exported("gemm_npu", tmp_path) as script:
        module = Module(of_study("gemm_npu").program, same, same)
        monkeypatch.setattr(allo.dataflow, "build", lambda *_, **__: module, raising=False)
        whole = (tmp_path / "limits.npz").read_bytes()
        header = b"\x93NUMPY\x01\x00\xff\xff{'descr': '<f4', 'fortran_order': False, 'shape': (1" + b"0" * 18
        for damaged in (whole[: len(whole) // 2], b"", header, whole.replace(b"C.npy", b"../.x")):
            (tmp_path / "limits.npz").write_bytes(damaged)
            if damaged.startswith(b"PK") and len(damaged) == len(whole):
                continue
            with pytest.raises(SystemExit, match=r"limits\.npz is damaged \(.*export the design again"):
                script.main()
