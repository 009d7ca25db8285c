"""HLS reports for the calibration of FPGA operators, from a run that used the HLS tool or from files."""

from __future__ import annotations

from pathlib import Path

from allo_dse.backends.fpga.operator_table import Reading, operators_in
from allo_dse.backends.fpga.report.report_files import read_hls_report
from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.eval.backend import backend_of

from .store.log import Log, sensible
from .store.record import Record, decode_entry
from .store.run_info import MARKER, read_info
from .store.rundir import LOG

SUFFIXES = (".xml", ".rpt")
OPERATORS = "operators"
"""The metric of designs that the HLS tool has measured."""


class Reported(Frozen):
    """Operator timings and resources from HLS reports.

    Attributes:
        device: device of the run; None if reports were given as files.
        other_parts: reports of other chips that were left out, with their parts.
    """

    readings: tuple[Reading, ...]
    device: str | None = None
    other_parts: tuple[str, ...] = ()


def has_reports(path: Path) -> bool:
    """Return whether a path is an HLS report, a directory of them, or a run on an FPGA."""
    if path.is_dir() and (path / MARKER).exists():
        name = read_info(path).device_name
        device = Device.load(name) if name in Device.names() else None
        return device is not None and backend_of(device).reads_reports
    return path.suffix in SUFFIXES or (path.is_dir() and bool(_files(path)))


def read_reported(path: Path, device: FpgaDevice | None = None) -> Reported:
    """Return the operators in the reports of a run or of files.

    Args:
        device: device whose part the reports must match.

    Raises:
        StudyError: when there are none.
        HlsReportError: for a report that cannot be read.
    """
    found = _of_run(path, device) if (path / MARKER).exists() else _of_files(path, device)
    if found.readings:
        return found
    others = f"; reports of other chips: {', '.join(found.other_parts)}" if found.other_parts else ""
    raise StudyError(
        f"{path} has no HLS reports with floating-point operators{others}",
        hint="a run whose rung is dse.HlsTool, csynth.xml, or a directory of projects",
    )


def _of_run(path: Path, device: FpgaDevice | None) -> Reported:
    name, log = read_info(path).device_name, path / LOG
    if device is not None and name != device.name and name in Device.names():
        part = FpgaDevice.load(name).part
        if _part(part) != _part(device.part):
            return Reported((), name, (f"{name} ({part})",))
    with sensible(log):
        records = [e for e in map(decode_entry, Log(log)) if isinstance(e, Record)]
    readings = [
        Reading(record.key, **reading)
        for record in records
        for reading in (record.metrics or {}).get(OPERATORS, ())
        if record.evaluated
    ]
    return Reported(tuple(readings), name)


def _of_files(path: Path, device: FpgaDevice | None) -> Reported:
    readings: list[Reading] = []
    others, known = [], set[tuple[object, ...]]()
    for file in _files(path) if path.is_dir() else [path]:
        # This is the tool's name for the report of a whole design; reports of its modules are beside it.
        report = read_hls_report(file.parent if path.is_dir() and file.stem == "csynth" else file)
        modules = {(m.name, m.latency.max, m.resources.ff, m.resources.lut) for m in report.modules}
        if file.suffix == ".xml":
            known |= modules
        elif modules and modules <= known:  # v++ copies text reports from the folder of another build
            continue
        if device is not None and _part(report.part) != _part(device.part):
            others.append(f"{file.name} ({report.part or 'part not named'})")
            continue
        readings += operators_in(report, str(file))
    return Reported(tuple(readings), None, tuple(others))


def _files(path: Path) -> list[Path]:
    """One report per design below a directory, without the tool's own working copies; those in XML first."""
    folders: dict[Path, list[Path]] = {}
    for file in sorted(path.rglob("*csynth.*")):
        if file.suffix in SUFFIXES and not any(part.startswith(".") for part in file.relative_to(path).parts):
            folders.setdefault(file.parent, []).append(file)
    return sorted((one for files in folders.values() for one in _designs(files)), key=lambda one: one.suffix != ".xml")


def _designs(files: list[Path]) -> list[Path]:
    """Select a folder's reports of whole designs, else all of them; prefer XML to text."""
    kind = [file for file in files if file.suffix == ".xml"] or files
    return [file for file in kind if file.stem == "csynth"] or kind


def _part(name: str) -> str:
    """A part as any tool writes it: xc7z020-clg400-1 is xc7z020clg400-1."""
    return name.replace("-", "").lower()
