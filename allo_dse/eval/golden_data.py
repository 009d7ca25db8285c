"""Test data of an exported project: random or given inputs, and the expected outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps

from allo_dse.common.records import Array, array_text, once
from allo_dse.compiler.model.arguments import Arguments
from allo_dse.lang.storage import stored, wrapped
from allo_dse.mapper.program import Program

from .execute.observation import Inputs, completed
from .execute.run import run_graph
from .inputs import Reference, asked, directions
from .reference import answers_of
from .tolerances import limits_of

DATA = "data"
"""The directory of a test bench's first inputs."""
SEED = 0
_SECONDS = 120.0
_ANSWERS_KEPT = 4  # a study's instance and its reduced one, for two sets of parameters

Arrays = dict[str, Array]


def remembered(reference: Reference) -> Reference:
    """Return a reference that caches the results of its latest inputs.

    All programs of a study compute the same, each in its own way, and NumPy takes long for that.
    """
    known: dict[tuple[str, ...], object] = {}

    @wraps(reference)
    def answers(*inputs: Array) -> object:
        return once(known, tuple(map(array_text, inputs)), lambda: reference(*inputs), _ANSWERS_KEPT)

    return answers


def golden_data(program: Program, reference: Reference | None = None, sets: Sequence[Inputs] = ()) -> dict[str, bytes]:
    """Return the files of a test bench: `data/<tensor>.bin`, and of the written tensors `data/golden/<tensor>.bin`.

    Floats among these may differ by `data/limits/<tensor>.bin`: a number of 32 bits for each element. There is no such
    file if the program takes too much work to analyse.

    Args:
        reference: maps the input arrays to the output array (or a tuple of them); without it the program itself is run.
        sets: sets of inputs, which random ones complete; from the second on they are in `data/set2`, `data/set3`, ...

    Raises:
        SimulationError: when the program cannot be run on these numbers.
    """
    files: dict[str, bytes] = {}
    outputs = directions(program)[1]
    for number, before in enumerate(completed(program, asked(program, reference), sets or [{}], SEED), 1):
        directory = DATA if number == 1 else f"{DATA}/set{number}"
        after = {name: array.copy() for name, array in before.items()}
        told = _told(program, reference, before)
        if told is None:
            run_graph(program.vmg, *after.values(), seconds=_SECONDS)
        else:
            after |= told
        golden = _files(program, after)
        files |= {f"{directory}/{name}.bin": content for name, content in _files(program, before).items()}
        for one in program.shared:  # keeps its contents from call to call
            files[f"{directory}/{one.tensor.name}.bin"] = stored(one.initial, one.tensor.dtype).tobytes()
        files |= {f"{directory}/golden/{name}.bin": golden[name] for name in outputs}
        limits = limits_of(program, before, from_run=told is None)
        files |= {f"{directory}/limits/{name}.bin": limit.tobytes() for name, limit in limits.items()}
    return files


def _told(program: Program, reference: Reference | None, before: Arrays) -> Arrays | None:
    """Return the outputs that a reference computes, or None if there is none or they are not exact to the last bit.

    Fixed-point numbers computed in floats are not: floats neither round nor wrap as fixed-point numbers do.
    """
    if reference is None:
        return None
    written = [tensor for tensor in program.tensors if tensor.name in program.written_tensors]
    told: Arrays = {}
    for tensor, value in zip(written, answers_of(reference, program, before), strict=True):
        own = before[tensor.name]
        if value.dtype.kind == "f" and tensor.dtype.is_fixed:
            return None
        told[tensor.name] = wrapped(value, tensor.dtype, own.dtype).reshape(own.shape)
    return told


def _files(program: Program, arrays: Arrays) -> dict[str, bytes]:
    return {name: one.tobytes() for name, one in Arguments(program, list(arrays.values())).by_name.items()}
