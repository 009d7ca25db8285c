"""A design in words: kernels that share a core, their order, and the bottleneck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allo_dse.space.design import Design

_RESOURCES = {
    "dram": "DRAM",
    "core": "the {place}s",
    "compute": "the {place}s",
    "dma": "DMA channels",
    "launch": "launch overhead",
    "host": "the host",
}


def explain(design: Design, metrics: Mapping[str, Any]) -> str:
    """One line, e.g. "chained 32 reduction steps, bundled 8x8 output tiles per core; 16 cores; bound by DRAM: 71 %".

    Args:
        design: a `space.design.Design`.
        metrics: of the design; `bound` maps resources to shares of the run time, `bottleneck` names the largest.
    """
    from allo_dse.eval.backend import backend_of  # imported late: `status` explains no design

    kernels = {kernel.name: kernel for kernel in design.program.kernels}
    words = backend_of(design.device).words(design, metrics)
    place = words.node
    parts = []
    for fold in design.fold.kernels:
        text = _kernel_words(fold, kernels.get(fold.kernel), place)
        parts.append(text if len(design.fold.kernels) == 1 else f"{fold.kernel}: {text}")
    parts += [f"{', '.join(members)} share their {place}s" for members in design.fold.chains]
    nodes = design.fold.node_count
    parts.append(f"{nodes} {place}{'s' if nodes != 1 else ''}")
    described = (*parts, *words.parts, _bound_words(metrics, place), latency_range_words(metrics), *words.caveats)
    return "; ".join(part for part in described if part)


def latency_range_words(metrics: Mapping[str, Any]) -> str:
    """Describe the accuracy of a predicted latency: "latency +-7 %, 62 measurements" or "latency not measured ...".

    If data decides on the latency, describe the sets of inputs it was found on. Empty if the metrics say neither.
    """
    inputs = metrics.get("timed_on")
    if isinstance(inputs, Mapping):
        cycles = inputs["latency_cycles"]
        others = f" (the slowest of {len(cycles)} sets; the fastest takes {min(cycles):,} cycles)"
        return f"latency of the study's inputs{others if len(cycles) > 1 else ''}: data decides on it"
    known, percent = metrics.get("latency_range"), range_percent(metrics)
    if not isinstance(known, Mapping):
        return ""
    if not known.get("measurements"):
        wide = f": +-{percent:.0f} %" if percent else ""
        return f"latency not measured for this board, kernel library and program{wide}"
    return f"latency +-{percent:.0f} %, {known['measurements']} measurements"


def range_percent(metrics: Mapping[str, Any]) -> float:
    """Return the per cent within which nine of ten predicted latencies of a design's kind lie; 0 if unknown."""
    known = metrics.get("latency_range")
    percent = known.get("percent") if isinstance(known, Mapping) else None
    return float(percent) if isinstance(percent, int | float) else 0.0


def timed_on_words(metrics: Mapping[str, Any]) -> str:
    """Describe the sets of inputs that designs were timed on; empty if latency does not depend on data."""
    inputs = metrics.get("timed_on")
    if not isinstance(inputs, Mapping):
        return ""
    sets = int(inputs["sets"])
    return ", timed on the study's inputs" + (f", the slowest of {sets} sets" if sets > 1 else "")


def near_words(metrics: Mapping[str, Any], latencies_us: Iterable[float]) -> str:
    """Describe the designs that predictions cannot tell from the fastest; empty if none, or if it was measured.

    Args:
        metrics: of the fastest design.
        latencies_us: of all designs that satisfy everything, the fastest included.
    """
    known = metrics.get("latency_range") or {}
    percent, most = range_percent(metrics), metrics.get("latency_us", 0.0)
    if not percent or not known.get("measurements"):
        return "how good predicted latencies are here is not known: nothing measured was compared" if known else ""
    others = sum(most <= us <= most * (1 + percent / 100) for us in latencies_us) - 1
    if others < 1:
        return ""
    which = f"{others:,} other evaluated designs are" if others > 1 else "1 other evaluated design is"
    return (
        f"{which} predicted to be slower by less than the {percent:.0f} % that predictions are good to: "
        "only measuring tells which is fastest"
    )


def _kernel_words(fold: Any, kernel: Any, place: str) -> str:
    mesh = kernel.mesh if kernel is not None else [axis.spatial for axis in fold.axes]
    trips = [extent // axis.spatial for extent, axis in zip(mesh, fold.axes, strict=True)]
    chained = [a for a, axis in enumerate(fold.axes) if axis.how == "chain" and trips[a] > 1]
    bundled = [a for a, axis in enumerate(fold.axes) if axis.how == "bundle" and trips[a] > 1]
    words = []
    if chained:
        written = _written_axes(kernel)  # where none is among them, steps along them accumulate
        steps = "reduction steps" if written and not written.intersection(chained) else "steps"
        words.append(f"chained {_times(trips, chained)} {steps}")
    if bundled:
        things = "output tiles" if bool(_written_axes(kernel).intersection(bundled)) else "tasks"
        text = f"bundled {_times(trips, bundled)} {things} per {place}"
        words.append(text + _loop_words(fold, bundled))
    grid = "x".join(str(axis.spatial) for axis in fold.axes if axis.spatial > 1)
    words.append(f"laid out {grid}" if grid else f"on one {place}")
    return ", ".join(words)


def _times(trips: list[int], axes: list[int]) -> str:
    return "x".join(str(trips[a]) for a in axes)


def _loop_words(fold: Any, bundled: list[int]) -> str:
    patterns = {fold.axes[a].pattern for a in bundled if fold.axes[a].spatial > 1}
    notes = []
    if len(patterns) == 1:
        notes.append(patterns.pop())
    elif patterns:
        notes.append(", ".join(f"axis {a} {fold.axes[a].pattern}" for a in bundled if fold.axes[a].spatial > 1))
    order = [a for a in fold.order if a in bundled]
    if len(order) > 1:
        notes.append(f"axis {order[0]} outermost")
    return f" ({'; '.join(notes)})" if notes else ""


def _written_axes(kernel: Any) -> set[int]:
    ports = [port for cls in getattr(kernel, "classes", ()) for port in cls.tensor_ports if port.writes]
    return {axis for port in ports for axis in port.layout if axis is not None}


def _bound_words(metrics: Mapping[str, Any], place: str) -> str:
    bound = metrics.get("bound")
    if not isinstance(bound, Mapping) or not bound:
        return ""
    name = metrics.get("bottleneck") or max(bound, key=lambda k: (bound[k], k))
    share = bound.get(name)
    resource = _RESOURCES.get(str(name).lower(), "{name}").format(place=place, name=name)
    words = f"bound by {resource}"
    if isinstance(share, int | float) and math.isfinite(share):
        words += f": {100 * share:.0f} %"
    return words
