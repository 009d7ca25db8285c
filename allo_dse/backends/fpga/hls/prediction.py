"""Predictions of the cost model for an HLS project in the terms of the tool's report, and their comparison.

A comparison is plain data, kept in a design's metrics:

    {"loops": [{"function": "gemm_all", "loop": "k_2", "ii": [4, 5], "depth": [14, 15], ...}],
     "resources": {"dsp": [10, 12], ...}, "cycles": 1200}

Each pair is the predicted and the reported value; None for a loop that only the other one pipelines.
"""

from __future__ import annotations

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import JsonObject
from allo_dse.device.fpga_model import RESOURCES

from ..depths.solver import run
from ..mapping import FpgaMapping
from ..network import NAME, VERSION
from ..report.report import HlsReport
from .project import HlsProject, PredictedLoop, Prediction
from .retime import Timings, labelled

FUNCTION, LOOP = "function", "loop"


def predicted(mapping: FpgaMapping, project: HlsProject) -> Prediction | None:
    """Predict the report of a design's project; None if control depends on data, and has no static times."""
    depths = mapping.depths or {}
    try:
        _, result = run(mapping, depths)
        loops = predicted_loops(mapping, project)
    except SimulationError:
        return None
    return Prediction(
        source=f"{NAME} {VERSION}",
        latency_cycles=int(result.cycles),
        clock_mhz=mapping.device.clock_ghz * 1e3,
        resources={name: getattr(mapping.total, name) for name in RESOURCES},
        loops=loops,
    )


def predicted_loops(mapping: FpgaMapping, project: HlsProject) -> tuple[PredictedLoop, ...]:
    """Return the cost model's pipelined loops that have a label in the C++, in program order.

    Raises:
        SimulationError: where control depends on data.
    """
    labels = labelled(mapping.vmg.program, project)
    found: dict[tuple[str, str], PredictedLoop] = {}
    for uses in mapping.vmg.uses.classes:
        for _, task_class, pid in uses:
            function = project.functions.get(task_class.body.symbol, "")
            names = {variable: label for label, variable in labels.get(function, {}).items()}
            for loop in mapping.cost(task_class, pid).loops if names else ():
                if name := names.get(loop.variable):
                    one = PredictedLoop(function, name, loop.trips, loop.ii, loop.depth, loop.cycles)
                    found.setdefault((function, name), one)
    return tuple(found.values())


def comparison(mapping: FpgaMapping, project: HlsProject, report: HlsReport, timings: Timings) -> JsonObject:
    """Predicted against reported, per loop that either pipelines and per resource that the report states."""
    found = predicted(mapping, project)
    if found is None:
        return {}
    labels, reported = labelled(mapping.vmg.program, project), dict[tuple[str, str], tuple[int, int]]()
    for task_class in mapping.vmg.program.task_classes:
        function = project.functions.get(task_class.body.symbol, "")
        own = timings.get((task_class.kernel, task_class.name), {})
        for label, variable in labels.get(function, {}).items():
            if known := own.get(variable):
                reported[function, label] = known.ii, known.depth
    model = {(one.function, one.name): (one.ii, one.depth) for one in found.loops}
    order, nothing = list(project.functions.values()), (None, None)
    loops = []
    for place in sorted({**model, **reported}, key=lambda place: order.index(place[0])):
        pairs = zip(model.get(place, nothing), reported.get(place, nothing), strict=True)
        loops.append({FUNCTION: place[0], LOOP: place[1], **dict(zip(("ii", "depth"), map(list, pairs), strict=True))})
    stated = {name: getattr(report.resources, name) for name in RESOURCES}
    resources = {name: [found.resources[name], value] for name, value in stated.items() if value is not None}
    return {"cycles": found.latency_cycles, "loops": loops, "resources": resources}
