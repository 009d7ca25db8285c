"""Functions of `import allo_dse as dse` that take a program, a folded graph or a design."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from allo_dse.common.errors import AlloDseError, DeviceError
from allo_dse.common.files import write_whole
from allo_dse.common.records import replace
from allo_dse.device.device import Device
from allo_dse.eval.backend import backend_of
from allo_dse.eval.execute.run import run_graph
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Violation
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.space.design import Design

if TYPE_CHECKING:
    from allo_dse.eval.backend import Placement
    from allo_dse.simulator.engine.run_result import RunResult
    from allo_dse.simulator.replay.trace import Trace
    from allo_dse.space.backend import DeviceMapping


def check(mapping: VMG | Design | Program, device: Device | str | None = None) -> list[Violation]:
    """Return the limits of a device that a mapping exceeds; none when it fits.

    Args:
        mapping: a graph (buffered as `Buffering()` says), a design, or a program that is not folded at all.
        device: a device or its name; a design brings its own.
    """
    return list(_target(mapping, device, "check").violations)


def place(
    mapping: VMG | Design | Program, device: Device | str | None = None, *, time_limit_s: float | None = None
) -> Placement:
    """Return the place of each node on the device's array, with all routes; or the limits that forbid any.

    Args:
        mapping, device: as for `check`.
        time_limit_s: after it, the answer may be that there was no time to decide.

    Raises:
        DeviceError: for a device without an array.
    """
    where = mapping.device if device is None and isinstance(mapping, Design) else device
    target = _target(mapping, device, "place")
    assert where is not None
    found = Device.of(where)
    placement = backend_of(found).place(target, time_limit_s)
    if placement is None:
        raise DeviceError(f"{found.name} has no array to place nodes on", hint="NPUs have one")
    return placement


class Picture(str):
    """The text of a picture, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def draw(mapping: VMG | Design | Program | Placement, path: str | Path | None = None) -> Picture:
    """Draw a program's graph, a folded graph, a design, or a placement, as SVG.

    Args:
        path: where to write it, too.
    """
    from allo_dse.drawing import vmg_svg

    is_placed = getattr(mapping, "placed", False)
    picture = cast("Placement", mapping).drawn() if is_placed else vmg_svg(_graph(cast(VMG, mapping), "draw"))
    if path is not None:
        write_whole(Path(path), picture)
    return Picture(picture)


def _target(mapping: VMG | Design | Program, device: Device | str | None, function: str) -> DeviceMapping:
    """The mapping that a function of the public API is about."""
    target = None if device is None else Device.of(device)
    if isinstance(mapping, Design):
        if target is None:
            return mapping.mapping
        return backend_of(target).map(mapping.vmg, target, mapping.buffering, mapping.schedule, mapping.depths)
    if target is None:
        raise AlloDseError(f"{function} needs a device", hint=f'{function}(vmg, "npu1_4col")')
    return backend_of(target).map(_graph(mapping, function), target)


def _graph(mapping: VMG | Design | Program, function: str) -> VMG:
    """The folded graph of what a function of the public API is given."""
    if isinstance(mapping, VMG):
        return mapping
    if not isinstance(mapping, Program | Design):
        hint = f"{function} takes what load_program(...) returns, its .vmg, or a design"
        raise AlloDseError(f"{function}: {mapping!r} is no program", hint=hint)
    return mapping.vmg


def simulate(
    program: Program | VMG | Design,
    *arrays: Any,
    depths: Mapping[str, int] | None = None,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
    record: bool = False,
    values: bool = True,
    frames: int = 1,
) -> RunResult:
    """Run a program, a folded graph or a design: numbers and cycles in one run.

    Args:
        arrays: the region's arguments in order, written in place; without any, zeros are used.
        depths: stream depths by name, where they differ from the declared ones.
        seconds: time limit.
        record: keep every event, for the result's `timeline`, `explain()`, `save_perfetto(path)` and `trace`.
        values: compute them. Without, only times are of use, and long regular programs take no longer than short ones.
        frames: how often the region is called; tasks begin their next frame as soon as they are done with the last.

    Raises:
        DeadlockError: naming the tasks and streams that wait for each other.
        SimulationError: for arguments that do not fit, or at the time limit.
    """
    from allo_dse.eval.execute.run import run_graph

    vmg = _graph(program, "simulate")
    given = arrays or _zeros(vmg)
    own = _built_depths(program, depths)
    return run_graph(
        vmg, *given, depths=own, seconds=seconds, progress=progress, record=record, values=values, frames=frames
    )


def record_trace(
    program: Program | VMG | Design,
    *arrays: Any,
    depths: Mapping[str, int] | None = None,
    seconds: float | None = None,
) -> Trace:
    """Run a program once, to time it again for other stream depths with `Trace.replay`.

    A program that deadlocks at its depths is run with deeper streams; the trace has the depths as they are.

    Args:
        arrays: the region's arguments in order; they are not written to. Without any, zeros are used.
        depths: stream depths by name, where they differ from the declared ones.
        seconds: time limit.

    Raises:
        DeadlockError: if no depths help.
        SimulationError: for arguments that do not fit, or at the time limit.
    """
    vmg = _graph(program, "record_trace")
    return record_graph(vmg, *(arrays or _zeros(vmg)), depths=_built_depths(program, depths), seconds=seconds)


def _built_depths(program: Program | VMG | Design, changes: Mapping[str, int] | None) -> dict[str, int]:
    """Return the stream depths that a design is built with, and those that a call gives."""
    own = dict(program.as_built.depths) if isinstance(program, Design) else {}
    return {**own, **(changes or {})}


def _zeros(vmg: VMG) -> tuple[Any, ...]:
    """Arguments for a program whose values do not matter."""
    from allo_dse.compiler.model.arguments import numpy_dtype

    return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in vmg.program.tensors)


def record_graph(
    vmg: VMG, *arrays: object, depths: Mapping[str, int] | None = None, seconds: float | None = None
) -> Trace:
    """The trace of a graph's run on arrays, which keep their contents.

    Raises:
        DeadlockError: if it deadlocks with any depths.
        SimulationError: as `run_graph`.
        TraceError: if what it does cannot be replayed.
    """
    from allo_dse.simulator.replay.trace import Trace

    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    try:
        return Trace.recorded(run_graph(vmg, *given, depths=depths, seconds=seconds, record=True))
    except DeadlockError as error:
        if error.increase is None or not error.increase.changes:
            raise
        changes = {error.labels.array(stream): (old, new) for stream, old, new in error.increase.changes}
    deeper = {array: new for array, (_, new) in changes.items()}
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    result = run_graph(vmg, *given, depths={**(depths or {}), **deeper}, seconds=seconds, record=True)
    depth = result.network.depth.copy()
    for stream in range(len(depth)):
        old, new = changes.get(result.labels.array(stream), (0, 0))
        if depth[stream] == new:
            depth[stream] = old
    return Trace(replace(Trace.recorded(result).data, stream_depth=depth))
