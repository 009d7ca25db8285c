"""The command that fits a device file to measurements, or to HLS reports: `calibrate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup

from ..output import AsJson, RunOption, StudyOption, console, json_only, print_json

if TYPE_CHECKING:
    from allo_dse.backends.fpga.operator_table import OperatorCalibration
    from allo_dse.device.device import Device
    from allo_dse.eval.calibrate.calibration import Calibration


def calibrate(
    measurements: Annotated[Path, typer.Argument(metavar="MEASUREMENTS", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DEVICE.toml", help="Device file to write.")],
    run: RunOption = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="Start from this one and not the run's.")
    ] = None,
    study: StudyOption = None,
    as_json: AsJson = False,
) -> None:
    """Fit a device file: an NPU's to measured times, an FPGA's operators to HLS reports.

    MEASUREMENTS is a CSV with the columns design (key or number) and latency_us, or a run directory with measured
    designs. This executes the study file of the run. The device file that is written extends the run's device. For
    an FPGA it is a run directory with designs that dse.HlsTool has measured, a csynth.xml, or a directory of HLS
    projects.

    Examples:

      allo-tune calibrate measured.csv --run runs/gemm -o my_npu.toml
      allo-tune calibrate runs/gemm -o my_npu.toml      what a rung measured
      allo-tune calibrate measured.csv -o my_npu.toml --json | jq .errors
      allo-tune calibrate hls_runs --device u280 -o my_u280.toml
    """
    from allo_dse.device.writing import require_writable, write_device
    from allo_dse.eval.calibrate.calibration import calibrate as fit
    from allo_dse.eval.calibrate.calibration import tunable_of
    from allo_dse.tune.measurements import on_device, read_measurements
    from allo_dse.tune.operator_reports import has_reports

    require_writable(output, measurements, *([Path(device)] if device else []))
    if has_reports(measurements):
        _calibrate_operators(measurements, output, device, as_json=as_json)
        return
    with json_only(as_json):
        measured = read_measurements(measurements, run, study)
        base = _base(device, measured[0].design.device if measured else None)
        found = fit(on_device(measured, base) if device else measured)
    write_device(output, tunable_of(base).text(found, base, _extends(device, base, output)))
    if as_json:
        print_json({**found.to_dict(), "file": str(output)})
    else:
        _print(found, output)


def _calibrate_operators(reports: Path, output: Path, name_or_path: str | None, *, as_json: bool) -> None:
    from allo_dse.backends.fpga.operator_table import calibrate_operators
    from allo_dse.device.device import FpgaDevice
    from allo_dse.device.writing import fpga_text, write_device
    from allo_dse.tune.operator_reports import read_reported

    named = None if name_or_path is None else FpgaDevice.load(name_or_path)
    found = read_reported(reports, named)
    if named is None and found.device is None:
        raise StudyError("reports do not say which device file is meant", hint="name it with --device")
    base = named or FpgaDevice.load(str(found.device))
    calibrated = calibrate_operators(base, found.readings)
    text = fpga_text(calibrated.device, base, _extends(name_or_path, base, output), calibrated.comments)
    write_device(output, text)
    if as_json:
        print_json({**calibrated.to_dict(), "other_parts": list(found.other_parts), "file": str(output)})
    else:
        _print_operators(calibrated, found.other_parts, output)


def _print_operators(found: OperatorCalibration, other_parts: Sequence[str], output: Path) -> None:
    to, shown = console(), Table(show_edge=False)
    shown.add_column("operator", no_wrap=True)
    for name in ("MHz", "reports", "latency", "DSP", "FF", "LUT"):
        shown.add_column(name, justify="right")
    for row in found.rows:
        before = row.before or row.after
        pairs = [(getattr(before, f), getattr(row.after, f)) for f in ("latency", "dsp", "ff", "lut")]
        cells = [str(b) if a == b else f"{a} -> {b}" for a, b in pairs]
        shown.add_row(markup(f"{row.element}.{row.name}"), f"{row.after.mhz:g}", str(row.reports), *cells)
    to.print(shown)
    if other_parts:
        to.print(f"left out, of another chip than {markup(found.device.part)}: {markup(', '.join(other_parts))}")
    one = found.held_out
    to.print(
        f"latency and DSPs exact: {one.before} of {one.readings} operators of reports before, "
        f"{one.after} with those of other reports"
    )
    if not found.learned:
        to.print("[bold]learned nothing[/]: the device has all of this already")
    to.print(f"wrote {markup(str(output))}")


def _base(name_or_path: str | None, of_run: Device | None) -> Device:
    """Return the device to calibrate, as its file defines it."""
    from allo_dse.device.device import Device

    if name_or_path is not None:
        return Device.load(name_or_path)
    if of_run is None:
        raise StudyError("there are no measurements", hint="a line for each, with the columns design and latency_us")
    if of_run.name not in Device.names():
        raise StudyError(
            f"the run's device {of_run.name!r} is from a file of its own", hint="name the file with --device"
        )
    return Device.load(of_run.name)


def _extends(name_or_path: str | None, base: Device, output: Path) -> str:
    """Return the name or path of the base device for the written file."""
    if name_or_path is None or name_or_path in type(base).names():
        return base.name
    return os.path.relpath(name_or_path, output.parent)


def _print(found: Calibration, output: Path) -> None:
    to = console()
    left = [p for p in found.parameters if p.deviation is None]
    if len(left) < len(found.parameters):
        to.print(_parameters(found))
    for p in left:
        if p.alike or p.hidden:
            to.print(markup(f"{p.name} {p.words}"))
    if unseen := [p.name for p in left if not (p.alike or p.hidden)]:
        to.print(f"no measurement depends on {markup(', '.join(unseen))}")
    if found.unexplained:
        to.print(_unexplained(found))
    for kind, (median, high) in found.errors.items():
        to.print(f"{markup(kind.replace('_', '-')):>15}: median {median:.1%}, 90th percentile {high:.1%} off")
    if not found.learned:
        to.print("[bold]learned nothing[/] that holds for other designs: no number of the device is changed")
    if found.expected:
        to.print(found.expected)
    if found.lacking:
        to.print(f"the model lacks a term: {found.lacking}")
    to.print(f"{len(found.judged)} measurements; wrote {markup(str(output))}")


def _parameters(found: Calibration) -> Table:
    shown = Table(show_edge=False)
    shown.add_column("parameter", no_wrap=True)
    for name in ("before", "after", "+-"):
        shown.add_column(name, justify="right")
    for p in found.parameters:
        if p.deviation is not None:
            shown.add_row(markup(p.name), f"{p.before:.4g}", f"{p.after:.4g}", f"{p.deviation:.2g}")
    return shown


def _unexplained(found: Calibration) -> Table:
    shown = Table(show_edge=False, title="not explained", title_justify="left")
    for name in ("measurement", "measured us", "predicted us", "off"):
        shown.add_column(name, justify="left" if name == "measurement" else "right")
    for one in found.unexplained:
        measured = one.measurement.latency_us
        off = f"{one.after_us / measured - 1:+.0%}"
        shown.add_row(markup(one.measurement.label), f"{measured:.1f}", f"{one.after_us:.1f}", off)
    return shown
