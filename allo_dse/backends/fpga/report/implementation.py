"""Reports of synthesis and of place and route: `*_export.xml`, `export_impl.xml`, `*_utilization_*.rpt`."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element

from .report import HlsReportError, Implementation, Resources
from .text_tables import real, whole

_XML = {"bram18": "BRAM", "dsp": "DSP", "ff": "FF", "lut": "LUT", "uram": "URAM"}
_ROWS = {
    "bram18": r"Block RAM Tile",
    "dsp": r"DSPs|DSP Slices",
    "ff": r"(?:CLB|Slice) Registers|Registers",
    "lut": r"(?:CLB|Slice) LUTs\*?|LUTs",
    "uram": r"URAM",
}
_TILE = 2  # blocks of 18 Kbit in a tile
UTILIZATION = re.compile(r"^\s*\|?\s*Utilization Design Information|\|\s*Site Type\s*\|\s*Used\s*\|", re.MULTILINE)
"""Found in text reports of used resources."""


def read_implementation(path: Path, root: Element) -> Implementation:
    """Return the content of an XML report, by its root element.

    Raises:
        HlsReportError: if resources or timing are missing.
    """
    area, timing = root.find("AreaReport"), root.find("TimingReport")
    if area is None or timing is None:
        raise HlsReportError(f"{path}: no report of place and route", hint="run export_design -flow impl once more")
    said = {child.tag: (child.text or "").strip() for child in timing}
    achieved, target = real(said.get("AchievedClockPeriod", "")), real(said.get("TargetClockPeriod", ""))
    met = {"TRUE": True, "FALSE": False}.get(said.get("TIMING_MET", "").upper())
    if met is None and achieved is not None and target is not None:
        met = achieved <= target
    kind = (root.findtext("RunData/RUN_TYPE") or "").strip() or ("synth" if "synth" in path.stem else "impl")
    return Implementation(
        kind, _amounts(area, "Resources"), _amounts(area, "AvailableResources"), target, achieved, met
    )


def _amounts(area: Element, table: str) -> Resources:
    return Resources(**{name: whole(area.findtext(f"{table}/{tag}") or "") for name, tag in _XML.items()})


def read_utilization(path: Path, text: str) -> Implementation:
    """Return the content of a text report of used resources.

    Raises:
        HlsReportError: if it has none.
    """
    used: dict[str, int | None] = {}
    available: dict[str, int | None] = {}
    for name, label in _ROWS.items():
        row = re.search(rf"^\|\s*(?:{label})\s*\|(.*)\|\s*$", text, re.MULTILINE)
        cells = [cell.strip() for cell in row.group(1).split("|")] if row else []
        if len(cells) > 2:  # used, ..., available, share
            factor = _TILE if name == "bram18" else 1
            amounts = (real(cells[0]), real(cells[-2]))
            used[name], available[name] = (None if n is None else round(n * factor) for n in amounts)
    if not used:
        raise HlsReportError(f"{path}: no used resources, or truncated", hint="copy the report once more")
    kind = "impl" if re.search(r"placed|routed", path.stem) else "synth"
    return Implementation(kind, Resources(**used), Resources(**available))
