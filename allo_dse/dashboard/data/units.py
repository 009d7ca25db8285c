"""Names and numbers formatted for people: units from the names of metrics, four significant digits."""

from __future__ import annotations

_UNITS = {
    "_us": "µs",
    "_ms": "ms",
    "_ns": "ns",
    "_s": "s",
    "_cycles": "cycles",
    "_bytes": "bytes",
    "_gops": "Gop/s",
    "_mhz": "MHz",
    "_ghz": "GHz",
    "_w": "W",
    "_mj": "mJ",
    "_gb_s": "GB/s",
}
_WHOLE = {
    "utilization": "share",
    "bram18": "blocks",
    "uram": "blocks",
    "dsp": "slices",
    "lut": "LUTs",
    "ff": "flip-flops",
    "at": "s",
    "seconds": "s",
    "number": "trial",
}


def unit(name: str) -> str:
    """The unit of a column, from its name; empty when there is none."""
    if name.startswith("bound.") or name.endswith("_utilization"):
        return "share"
    if name in _WHOLE:
        return _WHOLE[name]
    return next((u for suffix, u in sorted(_UNITS.items(), key=lambda i: -len(i[0])) if name.endswith(suffix)), "")


def label(name: str) -> str:
    """A column's name with its unit: `latency_us` is "latency (µs)"."""
    measure = unit(name)
    if name == "pe_count":
        return "processing elements"  # cores of an NPU, processes of an FPGA
    if not measure:
        return name
    plain = next((name.removesuffix(s) for s in sorted(_UNITS, key=len, reverse=True) if name.endswith(s)), name)
    plain = {"at": "wall time", "seconds": "evaluation time", "number": "number"}.get(name, plain)
    return f"{plain.replace('_', ' ')} ({measure})"


def text(value: object) -> str:
    """A value: four significant digits, thousands separated, no exponent where it can be read without."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if value != value:
        return "–"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if abs(value) < 1e12 and abs(value) >= 1e4 else f"{value:.3e}"
