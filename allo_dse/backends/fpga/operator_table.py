"""The operator table of an FPGA from HLS reports: latency and resources of floating-point units as the tool built them.

readings = operators_in(read_hls_report("csynth.xml"), label="gemm")
found = calibrate_operators(FpgaDevice.load("u280"), readings)
found.device, found.rows, found.held_out
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median_low, mode

from allo_dse.common.records import Frozen, JsonObject
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import CLOCK_TOLERANCE, Operator, at_clock
from allo_dse.eval.calibrate.robust_fit import FOLDS

from .report.report import HlsOperator, HlsReport

_TYPES = {"f": "f32", "d": "f64"}
_BY_TYPE = {
    "add": "add",
    "sub": "add",
    "addfsub": "add",
    "adddsub": "add",
    "mul": "mul",
    "div": "div",
    "sqrt": "sqrt",
    "exp": "exp",
    "recip": "reciprocal",
    "cmp": "compare",
}
_OPERATIONS = {t + op: (element, name) for t, element in _TYPES.items() for op, name in _BY_TYPE.items()} | {
    "sitofp": ("f32", "from_int"),
    "uitofp": ("f32", "from_int"),
    "fpext": ("f32", "extend"),
    "fptrunc": ("f32", "truncate"),
}
"""Names of the tool's operations in the device file: element type and operator."""

Key = tuple[str, str]


@dataclass(frozen=True)
class Reading:
    """An operator as one report has it.

    Attributes:
        label: the report. element, name: as in the device file.
        latency: extra cycles. ff, lut: None where the report does not say them.
        units: how many of them the report has.
    """

    label: str
    mhz: float
    element: str
    name: str
    latency: int
    dsp: int | None = None
    ff: int | None = None
    lut: int | None = None
    units: int = 1

    @property
    def key(self) -> Key:
        return self.element, self.name

    def to_dict(self) -> JsonObject:
        """For a design's metrics."""
        return {name: value for name, value in asdict(self).items() if name != "label"}


class OperatorRow(Frozen):
    """A row of the operator table before and after.

    Attributes:
        before: what the device said for this clock, None of an operator without figures.
        reports: how many it rests on.
    """

    element: str
    name: str
    before: Operator | None
    after: Operator
    reports: int

    @property
    def key(self) -> Key:
        return self.element, self.name

    @property
    def is_changed(self) -> bool:
        return self.before is None or _differ(self.before, self.after)

    def to_dict(self) -> JsonObject:
        """For machines."""
        before = None if self.before is None else self.before.model_dump()
        place = {"operator": f"{self.element}.{self.name}", "reports": self.reports, "changed": self.is_changed}
        return {**place, "before": before, "after": self.after.model_dump()}


class HeldOut(Frozen):
    """Number of readings that a table predicts exactly, in latency and DSPs: the device's own, and one from other
    reports.
    """

    readings: int
    before: int
    after: int


class OperatorCalibration(Frozen):
    """A device with the operator table that follows from reports."""

    device: FpgaDevice
    rows: tuple[OperatorRow, ...]
    held_out: HeldOut

    @property
    def learned(self) -> bool:
        """True if reports differ from the device's table."""
        return any(row.is_changed for row in self.rows)

    @property
    def comments(self) -> dict[str, str]:
        """By operator ("f32.add") how many reports its new rows rest on."""
        changed = [row for row in self.rows if row.is_changed]
        return {
            f"{row.element}.{row.name}": "; ".join(
                f"from {one.reports} report{'s' * (one.reports > 1)} at {one.after.mhz:g} MHz"
                for one in changed
                if one.key == row.key
            )
            for row in changed
        }

    def to_dict(self) -> JsonObject:
        """For machines."""
        held_out = self.held_out
        counts = {"readings": held_out.readings, "exact_before": held_out.before, "exact_held_out": held_out.after}
        operators = [row.to_dict() for row in self.rows]
        return {"device": self.device.name, "learned": self.learned, "operators": operators, "held_out": counts}


_FIGURES = ("latency", "dsp", "ff", "lut")


def operators_in(report: HlsReport, label: str) -> tuple[Reading, ...]:
    """Return the operators of a report, each as most of its units are; empty if the report lacks its clock."""
    if not report.clock_ns:
        return ()
    groups: dict[Key, list[HlsOperator]] = {}
    for one in report.operators:
        place = _OPERATIONS.get(one.operation)
        if place is not None:
            # The tool has two adders, and takes the one without DSPs where it must be quick.
            name = "add_fabric" if place[1] == "add" and one.implementation == "fabric" else place[1]
            groups.setdefault((place[0], name), []).append(one)
    return tuple(_reading(label, 1e3 / report.clock_ns, key, units) for key, units in groups.items())


def _reading(label: str, mhz: float, key: Key, units: Sequence[HlsOperator]) -> Reading:
    latency, implementation = mode((one.latency, one.implementation) for one in units)
    alike = [one for one in units if (one.latency, one.implementation) == (latency, implementation)]
    dsp, ff, lut = (_middle(getattr(one.resources, f) for one in alike) for f in ("dsp", "ff", "lut"))
    return Reading(label, round(mhz, 1), *key, latency, dsp, ff, lut, len(units))


def _middle(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return median_low(known) if known else None


def calibrate_operators(device: FpgaDevice, readings: Sequence[Reading]) -> OperatorCalibration:
    """Return the device with a table that agrees with reports at their clocks; each report has one vote."""
    rows = _rows(device, readings)
    return OperatorCalibration(with_rows(device, rows), rows, held_out(device, readings))


def with_rows(device: FpgaDevice, rows: Iterable[OperatorRow]) -> FpgaDevice:
    """The device with these rows, in place of those of the same clocks.

    What the table said already is written down, too, where a changed row of another clock would now stand for it.
    """
    operators = {element: dict(table) for element, table in device.operators.items()}
    for row in sorted(rows, key=lambda one: not one.is_changed):
        table = operators.setdefault(row.element, {})
        known = table.get(row.name, ())
        now = at_clock(known, row.after.mhz) if known else None
        if row.is_changed or now is None or _differ(now, row.after):
            others = [one for one in known if not _same_clock(one.mhz, row.after.mhz)]
            table[row.name] = tuple(sorted([*others, row.after], key=lambda one: -one.mhz))
    return device.model_copy(update={"operators": operators})


def _rows(device: FpgaDevice, readings: Iterable[Reading]) -> tuple[OperatorRow, ...]:
    groups: dict[Key, list[list[Reading]]] = {}
    for reading in sorted(readings, key=lambda one: (one.key, -one.mhz)):
        alike = groups.setdefault(reading.key, [])
        if alike and _same_clock(alike[-1][0].mhz, reading.mhz):
            alike[-1].append(reading)
        else:
            alike.append([reading])
    return tuple(_row(device, found) for clocks in groups.values() for found in clocks)


def _row(device: FpgaDevice, alike: Sequence[Reading]) -> OperatorRow:
    """Return the medians of reports of one clock; figures that they lack are kept."""
    before = _row_for(device, alike[0])
    start = before or Operator(mhz=alike[0].mhz, latency=0)
    said = {f: _middle(getattr(one, f) for one in alike) for f in _FIGURES}
    figures = {f: value for f, value in said.items() if value is not None}
    after = start.model_copy(update={**figures, "mhz": alike[0].mhz})
    return OperatorRow(*alike[0].key, before, after, len({one.label for one in alike}))


def _differ(a: Operator, b: Operator) -> bool:
    return any(getattr(a, figure) != getattr(b, figure) for figure in _FIGURES)


def _same_clock(a: float, b: float) -> bool:
    return max(a, b) <= CLOCK_TOLERANCE * min(a, b)


def held_out(device: FpgaDevice, readings: Sequence[Reading]) -> HeldOut:
    """Compare each reading with the original device, and with one calibrated by reports of the other folds."""
    number = {label: n for n, label in enumerate(dict.fromkeys(one.label for one in readings))}
    fold = [number[one.label] % FOLDS for one in readings]
    before = sum(_is_exact(device, one) for one in readings)
    after = 0
    for out in range(min(FOLDS, len(number))):
        others = with_rows(device, _rows(device, [one for n, one in zip(fold, readings, strict=True) if n != out]))
        after += sum(_is_exact(others, one) for n, one in zip(fold, readings, strict=True) if n == out)
    return HeldOut(len(readings), before, after)


def _is_exact(device: FpgaDevice, reading: Reading) -> bool:
    row = _row_for(device, reading)
    return row is not None and row.latency == reading.latency and reading.dsp in (None, row.dsp)


def _row_for(device: FpgaDevice, reading: Reading) -> Operator | None:
    rows = device.operators.get(reading.element, {}).get(reading.name)
    return at_clock(rows, reading.mhz) if rows else None
