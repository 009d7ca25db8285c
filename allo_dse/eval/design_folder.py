"""A design as a folder of files for other tools: its decisions, its mapping, and sources to build from."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from allo_dse.backends.npu.board import build, folding
from allo_dse.backends.npu.board.program_source import NotCut, program_files
from allo_dse.common.files import write_whole
from allo_dse.common.records import JsonObject
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from .equivalence.exported import PROGRAM
from .tolerances import limits_of, tolerances_of
from .verify import Smaller, asked, directions

HLS = "hls"
"""The directory of an FPGA design's HLS project."""
MAX_JSON_PRIMITIVES = 5000
MOST_GOLDEN_ELEMENTS = 1 << 18
"""Most elements of all tensors for which the results of a reference without source are computed here."""
ALLO_FIFO_DEPTH = 2
"""Depth of every object FIFO that Allo makes (`backend.aie.mapping.FIFO`)."""

DESIGN, BUILD, FOLDING = "design.json", "build.py", "allo_folding.py"
GOLDEN, LIMITS = "golden.npz", "limits.npz"

Reference = Callable[..., Any]
Files = dict[str, str | bytes]


def write_files(files: Files, folder: Path) -> list[Path]:
    """Write files into a folder, and return them."""
    written = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        written.append(path)
    return written


def design_files(
    design: Design,
    *,
    reference: Reference | None = None,
    verify_with: Smaller | None = None,
    facts: JsonObject | None = None,
    hls: bool = True,
) -> Files:
    """Return `design.json`, `parameters.json`, the mapping, and an HLS project or a program that Allo builds.

    Args:
        reference: computes the expected results from the inputs, with NumPy.
        verify_with: as for `verify_design`; tolerances of large programs come from that instance.
        facts: further entries of `design.json`.
        hls: write the HLS project of an FPGA design.
    """
    files: Files = {
        "mapping.py": design.vmg.mapping_source(),
        "parameters.json": json_text(design.program.params),
    }
    if design.program.task_count <= MAX_JSON_PRIMITIVES:
        files["mapping_primitives.json"] = json.dumps(design.mapping_primitives) + "\n"
    said: JsonObject = {"key": design.key, **design.to_dict(), **(facts or {})}
    family = getattr(design.device, "family", None)
    if family == "fpga" and hls:
        files |= _hls_files(design, verify_with)
    elif family == "npu":
        own, allo = _allo_files(design, reference, verify_with)
        files |= own
        said["allo"] = allo
    return {**files, DESIGN: json_text(said)}


def json_text(values: Any) -> str:
    """Return values as the text of an indented JSON file."""
    return json.dumps(values, indent=2, default=str) + "\n"


def _hls_files(design: Design, verify_with: Smaller | None) -> dict[str, str]:
    """Return the design's HLS project, with the stream depths that the simulator and the HLS flow use."""
    from allo_dse.backends.fpga.hls.design_project import hls_project

    project = hls_project(design, dict(design.as_built.depths), verify_with=verify_with)
    return {f"{HLS}/{name}": text for name, text in project.files.items()}


def _allo_files(design: Design, reference: Reference | None, verify_with: Smaller | None) -> tuple[Files, JsonObject]:
    """Return a program that Allo builds, the build script, and the facts about the design that it needs."""
    program = design.program
    read = directions(program)[0]
    if reference is not None and asked(program, reference) != read:
        reference = None  # Allo's host calls the program many times, which updates its tensors each time
    tensors = tensor_facts(program)
    facts: JsonObject = {
        "device": design.device.name,
        "tensors": tensors,
        "tolerance": {
            name: {"largest": float(f"{one.largest:.4g}"), "rms": float(f"{one.rms:.4g}")}
            for name, one in tolerances_of(program, verify_with).items()
        },
        "not_taken": _not_taken(design),
    }
    files: Files = {BUILD: Path(build.__file__).read_text(), FOLDING: Path(folding.__file__).read_text()}
    try:
        files |= program_files(program.source, program.params, reference, dict(design.as_built.depths))
    except NotCut as problem:
        facts["not_taken"] = [f"the program: {problem.message}; write program.py with a function region()"]
        return files, facts
    spelled = any(words in str(files[PROGRAM]) for words in ("\nreference = ", "\ndef reference("))
    elements = sum(math.prod(tensor.shape) for tensor in program.tensors)
    if reference is not None and elements <= MOST_GOLDEN_ELEMENTS:
        arrays = build.make_arrays(tensors, 0)
        if not spelled:
            files[GOLDEN] = _golden(tensors, reference, arrays)
        if limits := limits_of(program, arrays):
            files[LIMITS] = _archive(limits)
    return files, facts


def tensor_facts(program: Program) -> build.Tensors:
    """Return the facts about a program's tensors that a script needs to feed them."""
    written = directions(program)[1]
    return [
        {
            "name": tensor.name,
            "dtype": str(numpy_dtype(tensor.dtype)),
            "shape": list(tensor.shape),
            "float": tensor.dtype.is_float,
            "written": tensor.name in written,
        }
        for tensor in program.tensors
    ]


def _golden(tensors: build.Tensors, reference: Reference, arrays: Mapping[str, Any]) -> bytes:
    """Return the results of a reference without its own source, for some inputs."""
    expected = build.expected_of(reference, tensors, arrays)
    names = [tensor["name"] for tensor in tensors if tensor["written"]]
    # NumPy's file format does not support the types of ml_dtypes.
    plain = [np.asarray(e, np.float32) if np.asarray(e).dtype.kind == "V" else np.asarray(e) for e in expected]
    return _archive(dict(zip(names, plain, strict=True)))


def _archive(arrays: Mapping[str, Any]) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def not_taken(files: Files) -> list[str]:
    """Return the notes on design decisions that Allo ignores, from the files of a design."""
    notes: list[str] = json.loads(files[DESIGN]).get("allo", {}).get("not_taken", [])
    return notes


def _not_taken(design: Design) -> list[str]:
    """Describe the decisions about an NPU design that Allo makes by itself."""
    notes = []
    depths = design.buffering
    for what, depth in (("input", depths.input_depth), ("output", depths.output_depth)):
        if depth != ALLO_FIFO_DEPTH:
            notes.append(f"object FIFOs of {what} tensors of depth {depth}: Allo makes {ALLO_FIFO_DEPTH}")
    return [*notes, "the placement in placement.json: Allo places by itself"]
