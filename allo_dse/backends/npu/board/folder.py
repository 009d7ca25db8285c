"""Files from which Allo builds a design: the program, the build script, and the facts that they need."""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from allo_dse.common.records import JsonObject
from allo_dse.device.device import NpuDevice
from allo_dse.eval.backend import Artifacts, Files, Reference, Sources
from allo_dse.eval.design_folder import MOST_GOLDEN_ELEMENTS, tensor_facts
from allo_dse.eval.equivalence.exported import PROGRAM
from allo_dse.eval.inputs import asked, directions
from allo_dse.eval.tolerances import limits_of, tolerances_of
from allo_dse.space.design import Design

from ..allo.rules import FIFO_DEPTH
from ..movement.layout_plan import layouts_on
from . import build, folding
from .program_source import NotCut, program_files

BUILD, FOLDING, GOLDEN, LIMITS = "build.py", "allo_folding.py", "golden.npz", "limits.npz"


def allo_artifacts(design: Design, sources: Sources) -> Artifacts:
    """Return a program that Allo builds, the build script, and notes on the decisions that Allo makes by itself."""
    files, facts = _allo_files(design, sources)
    notes = tuple(f"Not taken by Allo: {note}." for note in facts["not_taken"])
    layouts = [choice.to_dict() for choice in layouts_on(design.program.vmg.graph, NpuDevice.of(design.device)).choices]
    return Artifacts(files, {"allo": facts, **({"layouts": layouts} if layouts else {})}, notes)


def _allo_files(design: Design, sources: Sources) -> tuple[Files, JsonObject]:
    program = design.program
    reference: Reference | None = None if sources.reference is None else inspect.unwrap(sources.reference)
    read = directions(program)[0]
    if reference is not None and asked(program, reference) != read:
        reference = None  # Allo's host calls the program many times, which updates its tensors each time
    tensors = tensor_facts(program)
    facts: JsonObject = {
        "device": design.device.name,
        "tensors": tensors,
        "tolerance": {
            name: {"largest": float(f"{one.largest:.4g}"), "rms": float(f"{one.rms:.4g}")}
            for name, one in tolerances_of(program, sources.verify_with, sources.inputs).items()
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
            expected = map(np.asarray, build.expected_of(reference, tensors, arrays))
            names = [tensor["name"] for tensor in tensors if tensor["written"]]
            # NumPy's file format does not support the types of ml_dtypes.
            plain = [one.astype(np.float32) if one.dtype.kind == "V" else one for one in expected]
            files[GOLDEN] = _archive(dict(zip(names, plain, strict=True)))
        if limits := limits_of(program, arrays):
            files[LIMITS] = _archive(limits)
    return files, facts


def _archive(arrays: Mapping[str, Any]) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def _not_taken(design: Design) -> list[str]:
    """Describe the decisions about an NPU design that Allo makes by itself."""
    depths = {"input": design.buffering.input_depth, "output": design.buffering.output_depth}
    notes = (
        f"object FIFOs of {what} tensors of depth {depth}: Allo makes {FIFO_DEPTH}"
        for what, depth in depths.items()
        if depth != FIFO_DEPTH
    )
    return [*notes, "the placement in placement.json: Allo places by itself"]
