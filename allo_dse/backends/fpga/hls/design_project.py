"""HLS projects of designs and of folded graphs.

hls_project(design).write("best/hls")
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.common.records import replace
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.observation import InputSets
from allo_dse.eval.execute.run import folding_of
from allo_dse.eval.golden_data import golden_data
from allo_dse.eval.inputs import Reference, Smaller, reduced
from allo_dse.eval.tolerances import tolerances_of
from allo_dse.space.design import Design

from ..depths.solver import in_program_order
from ..mapping import FpgaMapping
from .dataflow.movers import KernelStreams
from .prediction import predicted
from .project import HlsProject, emit_project

SMALL = "small"
"""The directory of the project of a smaller instance."""


def hls_project(
    design: Design,
    depths: Mapping[str, int] | None = None,
    streams: KernelStreams | None = None,
    *,
    verify_with: Smaller | None = None,
    inputs: InputSets | None = None,
) -> HlsProject:
    """The HLS project of a design: its schedule, stream depths and folds, for its device.

    Args:
        depths: of streams by name, where they differ from the design's; without any, those that it is evaluated with.
        streams: tensors that are not in DRAM.
        verify_with: as for `verify_design`; tolerances of large programs come from that instance.
        inputs: the sets of inputs of a program; random ones without.
    """
    own = dict(design.as_built.depths) if depths is None else {**dict(design.depths), **depths}
    device = design.device if isinstance(design.device, FpgaDevice) else None
    return emit_project(
        design.program,
        schedule=design.schedule,
        depths=own,
        device=device,
        folding=folding_of(design.vmg, own, whole=bool(streams and streams.tables)),
        streams=streams,
        tolerances={n: (one.largest, one.rms) for n, one in tolerances_of(design.program, verify_with, inputs).items()},
    )


def board_project(
    design: Design,
    depths: Mapping[str, int] | None = None,
    *,
    reference: Reference | None = None,
    verify_with: Smaller | None = None,
    inputs: InputSets | None = None,
    streams: KernelStreams | None = None,
) -> HlsProject:
    """Return the HLS project of a design, with a test and a prediction of the tools' results.

    It has inputs with golden outputs, what the cost model predicts, and, with `verify_with`, the same design of a
    smaller instance in `small/`, because C++ takes minutes for large ones.

    Given depths are those that were solved, and made larger where the C++ needs that, which does its operations in the
    program's order; depths of the design itself stay.

    Args:
        reference, verify_with: as for `verify_design`. Without a reference the program is run for golden outputs; of
            a large instance only where there is no smaller one.
        inputs: the sets of inputs of a program; random ones without.
        streams: tensors that are not in DRAM. Such a kernel has inputs in any order, no golden outputs; its smaller
            instance has all in DRAM.
    """
    sets = inputs or (lambda _: ())
    if depths and not design.depths:
        depths = in_program_order(design.vmg, depths, sets(design.program) if design.program.runs else ())
    project = hls_project(design, depths, streams, verify_with=verify_with, inputs=inputs)
    prediction = predicted(replace(FpgaMapping.of(design), depths=depths or dict(design.depths)), project)
    if prediction is not None:
        project = project.with_prediction(prediction)
    small = None
    if verify_with is not None:
        with suppress(AlloDseError):  # an instance that cannot be tested
            program = reduced(design.program, verify_with)
            if data := golden_data(program, reference, sets(program)):
                small = replace(hls_project(replace(design, program=program), depths, inputs=inputs), data=data)
    own: Mapping[str, bytes] = {}
    if small is None or reference is not None:
        with suppress(SimulationError):  # a program that cannot be run on them
            own = golden_data(design.program, reference, sets(design.program))
    if streams is not None:
        own = {name: content for name, content in own.items() if "/golden/" not in name and "/limits/" not in name}
    if small is None:
        return replace(project, data=own)
    files = {f"{SMALL}/{name}": text for name, text in small.files.items()}
    content = {f"{SMALL}/{name}": content for name, content in small.data.items()}
    return replace(project, files={**project.files, **files}, data={**own, **content})
