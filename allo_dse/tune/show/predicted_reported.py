"""What the cost model predicted beside what the HLS tool reported, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .numbers import format_value

METRIC = "predicted_reported"
"""The metric of designs that the HLS tool has measured (`eval.hls.prediction.comparison`)."""
HEADINGS = ("", "", "predicted", "reported", "difference")

Row = tuple[str, str, str, str, str]


def predicted_reported_rows(metrics: Mapping[str, Any]) -> list[Row]:
    """Per resource, and per loop its II and depth: what, which quantity, predicted, reported, difference.

    What one of both does not pipeline is "-". Empty for designs that the tool has not measured.
    """
    return list(_rows(metrics.get(METRIC) or {}, metrics.get("latency_cycles")))


def _rows(found: Mapping[str, Any], cycles: float | None) -> Iterator[Row]:
    if not found:
        return
    yield "design", "cycles", *_pair(found["cycles"], cycles)
    for name, pair in found["resources"].items():
        yield "design", name, *_pair(*pair)
    for loop in found["loops"]:
        for quantity in ("ii", "depth"):
            yield f"{loop['function']}/{loop['loop']}", quantity, *_pair(*loop[quantity])


def _pair(predicted: float | None, reported: float | None) -> tuple[str, str, str]:
    if predicted is None or reported is None:
        return format_value(predicted), format_value(reported), ""
    if predicted == reported:
        return format_value(predicted), format_value(reported), "0"
    share = f"{100 * (predicted - reported) / reported:+.0f} %" if reported else "-"
    return format_value(predicted), format_value(reported), share
