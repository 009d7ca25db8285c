"""The parts of an HLS report: cycles, resources, loops, modules, FIFOs, violations, co-simulations.

A number that the report leaves open (`undef`, `?`, `-`, `inf`) or does not have at all is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from allo_dse.common.errors import AlloDseError

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


def first_known(one: int | None, other: int | None) -> int | None:
    """A number of two reports, of which either may lack it."""
    return other if one is None else one


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
        return Resources(**{name: first_known(getattr(self, name), getattr(other, name)) for name in RESOURCES})

    def __str__(self) -> str:
        known = ((name, getattr(self, name)) for name in RESOURCES)
        return ", ".join(f"{name} {amount:,}" for name, amount in known if amount is not None) or "?"


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
