"""Reports of an HLS tool about a design, in one immutable value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from allo_dse.common.errors import AlloDseError

if TYPE_CHECKING:
    import pandas

# The parts of an HLS report: cycles, resources, loops, modules, FIFOs, violations, co-simulations.
#
# A number that the report leaves open (`undef`, `?`, `-`, `inf`) or does not have at all is None, never 0.


RESOURCES = ("bram18", "dsp", "ff", "lut", "uram")


class HlsReportError(AlloDseError):
    """A report file that is missing, damaged, truncated or of another kind."""


@dataclass(frozen=True)
class Cycles:
    """A number of clock cycles, or iterations, that the report gives as a range."""

    min: int | None = None
    avg: int | None = None
    max: int | None = None

    @property
    def exact(self) -> int | None:
        """The number, if the report gives one and not a range."""
        return self.max if self.min == self.max else None

    @property
    def known(self) -> bool:
        """True if the report gives any of the three."""
        return any(value is not None for value in (self.min, self.avg, self.max))

    def __str__(self) -> str:
        if self.exact is not None:
            return f"{self.exact:,}"
        low, high = (f"{v:,}" if v is not None else "?" for v in (self.min, self.max))
        return f"{low} to {high}" if self.known else "?"


UNKNOWN = Cycles()


P = TypeVar("P", bound="Resources | HlsLoop | HlsFifo | Module | HlsReport")


def completed(known: P, other: P, *names: str) -> P:
    """Return a part of a report with another report's values of some fields where it has none of its own."""
    return replace(known, **{name: getattr(other, name) for name in names if getattr(known, name) is None})


@dataclass(frozen=True)
class Resources:
    """Amounts of the device's resources; BRAM in blocks of 18 Kbit."""

    bram18: int | None = None
    dsp: int | None = None
    ff: int | None = None
    lut: int | None = None
    uram: int | None = None

    def filled(self, other: Resources) -> Resources:
        """These amounts, and another report's where they are None."""
        return completed(self, other, *RESOURCES)

    def text(self, shares: Mapping[str, float]) -> str:
        """Return the amounts, and shares of the device's where they are known."""
        return (
            ", ".join(
                f"{name} {amount:,}" + (f" ({shares[name]:.1%})" if name in shares else "")
                for name in RESOURCES
                if (amount := getattr(self, name)) is not None
            )
            or "?"
        )

    def __str__(self) -> str:
        return self.text({})


NO_AMOUNTS = Resources()


@dataclass(frozen=True)
class Violation:
    """A constraint that the tool could not meet.

    `kind` is the report's ("II Violation", "Timing Violation"), `reason` its explanation ("Memory Dependency"), `loop`
    empty where a whole module is meant, `distance` the number of iterations that a dependence spans.
    """

    kind: str
    reason: str
    module: str
    loop: str = ""
    distance: int | None = None
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.loop} in {self.module}" if self.loop else self.module
        reason = f": {self.reason}" if self.reason else ""
        distance = f" at distance {self.distance}" if self.distance is not None else ""
        return f"{self.kind} of {place}{reason}{distance}{f' ({self.source})' if self.source else ''}"


@dataclass(frozen=True)
class HlsLoop:
    """A loop of the report, with the loops inside it.

    `ii` is the initiation interval that was achieved, `ii_target` the one asked for (text reports only), `depth` the
    latency of one iteration in cycles, `kind` the report's word: "yes" (pipelined), "no", "dataflow".
    """

    name: str
    module: str
    trip_count: Cycles = UNKNOWN
    latency: Cycles = UNKNOWN
    ii: int | None = None
    ii_target: int | None = None
    depth: int | None = None
    kind: str = ""
    source: str = ""
    loops: tuple[HlsLoop, ...] = ()

    @property
    def pipelined(self) -> bool:
        """True if its iterations overlap."""
        return self.kind not in ("", "no", "none", "-")

    def walk(self) -> Iterator[tuple[int, HlsLoop]]:
        """This loop and all inside it, outermost first, each with its nesting level."""
        yield 0, self
        for inner in self.loops:
            yield from ((level + 1, loop) for level, loop in inner.walk())


@dataclass(frozen=True)
class Module:
    """A module of the generated hardware: a function, or a loop that became a module of its own."""

    name: str
    kind: str = ""
    latency: Cycles = UNKNOWN
    interval: Cycles = UNKNOWN
    estimated_ns: float | None = None
    resources: Resources = NO_AMOUNTS
    loops: tuple[HlsLoop, ...] = ()
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class Instance:
    """A module in use: the name it has there and the module's."""

    name: str
    module: str


@dataclass(frozen=True)
class HlsOperator:
    """A unit that operations are bound to; `operation` and `implementation` in the tool's words ("fadd", "fulldsp"),
    `latency` in extra cycles: 0 is combinational. Flip-flops and LUTs are in text reports only."""

    name: str
    module: str
    operation: str
    implementation: str
    latency: int
    resources: Resources = NO_AMOUNTS


@dataclass(frozen=True)
class HlsFifo:
    """A FIFO between processes; `width` in bits, `depth` in words, resources as estimated by the tool."""

    name: str
    module: str
    depth: int | None = None
    width: int | None = None
    implementation: str = ""
    resources: Resources = NO_AMOUNTS
    source: str = ""


@dataclass(frozen=True)
class Cosim:
    """Outcome of RTL co-simulation of one language: cycles as counted there. `passed` is None where it was not run."""

    language: str
    passed: bool | None
    latency: Cycles = UNKNOWN
    interval: Cycles = UNKNOWN
    total_cycles: int | None = None


LOOPS_SHOWN = 40
VIOLATIONS_SHOWN = 12


@dataclass(frozen=True)
class Implementation:
    """A design after synthesis of its circuit ("synth"), or after place and route ("impl").

    Attributes:
        achieved_ns: clock period that its slowest path allows. timing_met: whether that is the target's.
    """

    kind: str
    resources: Resources = NO_AMOUNTS
    available: Resources = NO_AMOUNTS
    clock_ns: float | None = None
    achieved_ns: float | None = None
    timing_met: bool | None = None

    def __str__(self) -> str:
        clock = "" if self.achieved_ns is None else f", {self.achieved_ns:g} ns"
        missed = ", timing not met" if self.timing_met is False else ""
        return f"{self.kind}: {self.resources}{clock}{missed}"


@dataclass(frozen=True)
class HlsReport:
    """All content of one design's reports. Fields that no file has are empty or None."""

    files: tuple[str, ...]
    tool: str = ""
    top: str = ""
    part: str = ""
    family: str = ""
    clock_ns: float | None = None
    """Target period."""
    uncertainty_ns: float | None = None
    estimated_ns: float | None = None
    """Estimated period, without the uncertainty."""
    kind: str = ""
    """Execution of the top function in the report's words: "dataflow", "no", "none", "yes"."""
    latency: Cycles = UNKNOWN
    interval: Cycles = UNKNOWN
    resources: Resources = NO_AMOUNTS
    available: Resources = NO_AMOUNTS
    modules: tuple[Module, ...] = ()
    fifos: tuple[HlsFifo, ...] = ()
    """The design's streams."""
    tool_fifos: tuple[HlsFifo, ...] = ()
    """FIFOs that the tool added, for scalars that pass from task to task."""
    operators: tuple[HlsOperator, ...] = ()
    """Units that operations are bound to."""
    violations: tuple[Violation, ...] = ()
    cosims: tuple[Cosim, ...] = ()
    implementations: tuple[Implementation, ...] = ()
    """After synthesis, and after place and route."""
    notes: tuple[str, ...] = ()

    @property
    def loops(self) -> tuple[HlsLoop, ...]:
        """Outermost loops of all modules, in the report's order."""
        return tuple(loop for module in self.modules for loop in module.loops)

    def all_loops(self) -> Iterator[HlsLoop]:
        """All loops, nested ones after the loop they are in."""
        return (inner for loop in self.loops for _, inner in loop.walk())

    @property
    def cosim(self) -> Cosim | None:
        """The co-simulation that was run; None if there was none."""
        return next((c for c in self.cosims if c.passed is not None), None)

    @property
    def implementation(self) -> Implementation | None:
        """The design after place and route, or else after synthesis; None if neither was run."""
        return max(
            self.implementations, key=lambda one: (one.kind == "impl", one.achieved_ns is not None), default=None
        )

    @property
    def ii_violations(self) -> tuple[Violation, ...]:
        """Violations of an initiation interval."""
        return tuple(v for v in self.violations if v.kind.startswith("II"))

    def module(self, name: str) -> Module:
        """The module of that name.

        Raises:
            HlsReportError: if there is none.
        """
        for module in self.modules:
            if module.name == name:
                return module
        known = ", ".join(module.name for module in self.modules) or "none"
        raise HlsReportError(f"the report has no module `{name}`", hint=f"its modules: {known}")

    def utilization(self) -> dict[str, float]:
        """Share of the device's resources in use, per resource that the report gives both numbers of."""
        pairs = ((name, getattr(self.resources, name), getattr(self.available, name)) for name in RESOURCES)
        return {name: used / limit for name, used, limit in pairs if used is not None and limit}

    def to_dict(self) -> dict[str, object]:
        """Plain data: dictionaries, lists, numbers and strings."""
        return asdict(self)

    def to_json(self, **options: Any) -> str:
        """JSON of `to_dict()`; options are those of `json.dumps`."""
        return json.dumps(self.to_dict(), **options)

    def by_loop(self) -> pandas.DataFrame:
        """One row per loop: module, loop, level, trip count, ii, ii_target, depth, latency, kind, source, violation."""
        why = {(v.module, v.loop): v.reason or v.kind for v in self.ii_violations if v.loop}
        rows: list[dict[str, object]] = [
            {
                "module": loop.module,
                "loop": loop.name,
                "level": level,
                "trip_min": loop.trip_count.min,
                "trip_max": loop.trip_count.max,
                **{name: getattr(loop, name) for name in ("ii", "ii_target", "depth")},
                "latency_min": loop.latency.min,
                "latency_max": loop.latency.max,
                **{name: getattr(loop, name) for name in ("kind", "source")},
                "ii_violation": why.get((loop.module, loop.name), ""),
            }
            for outer in self.loops
            for level, loop in outer.walk()
        ]
        return _frame(rows)

    def by_fifo(self) -> pandas.DataFrame:
        """One row per FIFO: name, module, depth, width, implementation, resources, source."""
        return _frame([_flat(fifo) for fifo in self.fifos])

    def by_operator(self) -> pandas.DataFrame:
        """One row per unit: name, module, operation, implementation, latency, resources."""
        return _frame([_flat(operator) for operator in self.operators])

    def __str__(self) -> str:
        return _text(self)


def _flat(part: HlsFifo | HlsOperator) -> dict[str, object]:
    row = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "resources"}
    return row | asdict(part.resources)


def _frame(rows: list[dict[str, object]]) -> pandas.DataFrame:
    """A table whose whole numbers stay whole where some are missing."""
    import pandas

    return pandas.DataFrame(rows).convert_dtypes()


def _text(report: HlsReport) -> str:
    """Return the report's main figures, its loops and the constraints that the tool missed."""
    lines = [
        f"{report.top or 'design'} on {report.part or 'an unnamed part'}, HLS {report.tool or 'of unknown version'}"
    ]
    if report.clock_ns is not None:
        estimate = f", estimated {report.estimated_ns} ns" if report.estimated_ns is not None else ""
        lines.append(f"  clock: {report.clock_ns} ns{estimate}")
    if report.modules or report.latency.known:
        lines.append(f"  latency: {report.latency} cycles, interval: {report.interval} cycles ({report.kind or '?'})")
        lines.append(f"  resources: {report.resources.text(report.utilization())}")
    for cosim in report.cosims:
        cycles = f", {cosim.latency} cycles" if cosim.latency.known else ""
        outcome = "passed" if cosim.passed else "FAILED"
        lines += [f"  RTL co-simulation: {outcome} ({cosim.language}){cycles}"] if cosim.passed is not None else []
    lines += [f"  {one}" for one in report.implementations]
    lines += _loop_lines(report)
    if report.fifos:
        deepest = max(report.fifos, key=lambda fifo: fifo.depth or 0)
        words = "?" if deepest.depth is None else deepest.depth
        lines.append(f"  FIFOs: {len(report.fifos)}, deepest {deepest.name} ({words} words)")
    lines += _limited([f"  {violation}" for violation in report.violations], VIOLATIONS_SHOWN)
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines)


def _loop_lines(report: HlsReport) -> list[str]:
    rows = [("  loop", "module", "trip", "II", "depth", "cycles")]
    for level, loop in (one for outer in report.loops for one in outer.walk()):
        ii = "-" if loop.ii is None else str(loop.ii)
        if loop.ii_target not in (None, loop.ii):
            ii += f" (target {loop.ii_target})"
        depth = "-" if loop.depth is None else f"{loop.depth:,}"
        rows.append(("  " * (level + 1) + loop.name, loop.module, str(loop.trip_count), ii, depth, str(loop.latency)))
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows[: LOOPS_SHOWN + 1], strict=True)]
    head, *text = (
        "  ".join([*map(str.ljust, row[:2], widths[:2]), *map(str.rjust, row[2:], widths[2:])]) for row in rows
    )
    return [head, *_limited(text, LOOPS_SHOWN)]


def _limited(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"  … and {len(lines) - most} more"]
