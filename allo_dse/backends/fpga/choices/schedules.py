"""The schedules an FPGA study may choose from: declared one by one, or derived from the program.

schedules=[dse.pipeline("gemm:k", [1, 2]), dse.unroll("gemm:j", dse.divisors(64)), dse.partition("A", 2, [1, 2, 4])]
schedules="auto"
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, TypeVar

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import MOST_KEPT, Frozen, replace
from allo_dse.compiler.ir.nest import loops_of, read_nest
from allo_dse.compiler.program.compiled import (
    ADDERS,
    DATAFLOW,
    LANES,
    REGION,
    CompiledProgram,
    Directive,
    Kernel,
    TaskClass,
    is_region,
    kernel_of,
)
from allo_dse.compiler.schedule.edges import edge_tensors
from allo_dse.device.device import FpgaDevice
from allo_dse.space.choice import Answer, Ask, Question, QuestionChoice, every_way
from allo_dse.space.design import Draft
from allo_dse.space.params import Parameter

from ..edges import AXIS, INTERFACE, M_AXI, PIPO, block_streams, has_axis
from .nests import is_chain

Decided = tuple[tuple[Directive, ...], tuple[tuple[str, int], ...]]
"""Directives, and stream depths by array name."""


A = TypeVar("A", bound=Hashable)


class ScheduleChoice(QuestionChoice, Generic[A]):
    """Decides schedules by asking; the same procedure decodes genes, enumerates all schedules and counts them."""

    reads = frozenset({"program"})
    writes = frozenset({"schedule", "depths"})

    def __init__(self) -> None:
        self._decided = lru_cache(MOST_KEPT)(self.decided)

    @abstractmethod
    def asked(self, program: CompiledProgram, ask: Ask) -> A:
        """All answers."""

    @abstractmethod
    def decided(self, program: CompiledProgram, answers: A) -> Decided:
        """The schedule that the answers make."""

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        schedule, depths = self._decided(draft.compiled, self.asked(draft.compiled, ask))
        return replace(draft, schedule=schedule, depths=depths)

    def count(self, draft: Draft, limit: int) -> int:
        """Count the combinations of answers, without making their schedules."""
        ways = every_way(lambda ask: self.asked(draft.compiled, ask))
        return sum(1 for _ in islice(ways, limit + 1))


class ScheduleParameter(Frozen):
    """A variable directive of one loop, array or stream.

    Attributes:
        target: "kernel:loop", "kernel:array", or the name of a tensor or stream of the region.
        options: fixed options of the directive.
        values: of the option `varies`; ascending numbers, or words.
    """

    kind: str
    target: str
    varies: str
    values: tuple[Answer, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Name of its gene."""
        dim = dict(self.options).get("dim")
        target = self.target.partition(":")[0] if self.kind == DATAFLOW else self.target  # of a kernel as a whole
        return f"schedule.{self.kind}.{target}" + ("" if dim is None else f".{dim}")

    def directive(self, value: Answer) -> Directive:
        """The directive with this value."""
        scope, _, name = self.target.rpartition(":")
        return Directive(self.kind, scope or REGION, name, {**dict(self.options), self.varies: value})


_LEGAL = {
    "unroll": "factors must divide the rounds of the loop, which must always be as many",
    "partition": "factors must divide the extent of a dimension that there is; the first is 1",
    "place": "the device has no UltraRAM, or no task fills whole blocks of the stream and another only reads them",
    INTERFACE: "a port can be a stream if its only task accesses each element of the tensor once, in row-major order",
    "pack": "widths are multiples of an element's, and at most that of an AXI port",
}


def _numbers(values: Parameter | Sequence[int], least: int, what: str) -> tuple[int, ...]:
    given = values.values if isinstance(values, Parameter) else values
    numbers = tuple(given) if isinstance(given, Iterable) else ()
    if not numbers or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in numbers):
        raise StudyError(
            f"{what}: needs integers of at least {least}, not {given!r}", hint="" if numbers else "a list, also of one"
        )
    return tuple(sorted(set(numbers)))


def _of_numbers(
    kind: str, target: str, varies: str, values: Parameter | Sequence[int], least: int = 1
) -> ScheduleParameter:
    return ScheduleParameter(kind, target, varies, _numbers(values, least, f"{kind}({target})"))


def pipeline(loop: str, intervals: Parameter | Sequence[int] = (1,)) -> ScheduleParameter:
    """Pipeline a loop ("kernel:loop") with one of these intervals; 0 leaves it to the tool."""
    return _of_numbers("pipeline", loop, "initiation_interval", intervals, 0)


def unroll(loop: str, factors: Parameter | Sequence[int]) -> ScheduleParameter:
    """Unroll a loop by one of these factors. Only divisors of its trips are offered; 1 leaves it as it is."""
    return _of_numbers("unroll", loop, "factor", factors)


def partition(array: str, dim: int, factors: Parameter | Sequence[int], *, kind: str = "cyclic") -> ScheduleParameter:
    """Split dimension `dim` (1-based) of an array into one of these numbers of banks, "cyclic" or "block".

    1 keeps it whole. Only factors that divide the dimension count.
    """
    if kind not in ("cyclic", "block"):
        raise StudyError(
            f"partition({array}): kind must be 'cyclic' or 'block', not {kind!r}", hint="complete: all banks"
        )
    (dim,) = _numbers([dim], 1, f"partition({array}): dim")
    options = (("dim", dim), ("partition_type", kind))
    return ScheduleParameter("partition", array, "factor", _numbers(factors, 1, f"partition({array})"), options)


ADDERS_BY = ("auto", "fabric")
FLOWS = ("in turn", "at once")
_MEMORIES = ("auto", "onchip", "dram", "copied", "stream", "pipo", "bram", "uram", "lutram", "register")
_LONGEST_BURST = 256  # beats of an AXI4 burst (ARM IHI 0022, "Burst length")


def memory(array: str, places: Sequence[str]) -> ScheduleParameter:
    """Vary the memory of an array: "auto", "bram", "uram", "lutram", "register".

    For a tensor also "onchip", so that it is not copied, "dram": only tiles of the tasks at work leave DRAM,
    "copied": all of it is on the chip while tasks work, or "stream": its elements pass through a FIFO, which is the
    default where its only task accesses each once, in row-major order. For a stream of blocks "auto", a FIFO, or
    "pipo", a ping-pong buffer in which both its tasks work.
    """
    if not places or any(place not in _MEMORIES for place in places):
        raise StudyError(f"memory({array}): {list(places)!r}", hint=f"known places: {', '.join(_MEMORIES)}")
    return ScheduleParameter("place", array, "memory", tuple(places))


def interface(
    tensor: str, modes: Sequence[str] = (M_AXI, AXIS), *, burst: int | None = None, outstanding: int | None = None
) -> ScheduleParameter:
    """Vary the port of a tensor that streams: "m_axi" reads or writes DRAM in bursts, "axis" is an AXI-Stream.

    Args:
        burst: longest burst, in elements; 16 as in the tool, at most 256.
        outstanding: bursts under way; 16 as in the tool.
    """
    if not modes or any(mode not in (M_AXI, AXIS) for mode in modes):
        raise StudyError(f"interface({tensor}): {list(modes)!r}", hint=f"known: {M_AXI}, {AXIS}")
    options = {"burst": burst, "outstanding": outstanding}
    given = {name: _numbers([n], 1, f"interface({tensor}): {name}")[0] for name, n in options.items() if n is not None}
    if given.get("burst", 1) > _LONGEST_BURST:
        raise StudyError(f"interface({tensor}): burst={burst}", hint=f"AXI4 has bursts of up to {_LONGEST_BURST} beats")
    return ScheduleParameter(INTERFACE, tensor, "mode", tuple(modes), tuple(given.items()))


def pack(tensor: str, bits: Parameter | Sequence[int]) -> ScheduleParameter:
    """Copy a tensor in words of one of these widths; multiples of its elements that the AXI port has count."""
    return _of_numbers("pack", tensor, "bits", bits)


def lanes(factors: Parameter | Sequence[int]) -> ScheduleParameter:
    """Compute one of these numbers of neighbours at once in operations on tiles; arrays have as many banks."""
    return _of_numbers(LANES, "tiles", "factor", factors)


def stream_depth(stream: str, depths: Parameter | Sequence[int]) -> ScheduleParameter:
    """Give a stream one of these depths; without it the evaluator finds the smallest that cost no time."""
    return _of_numbers("depth", stream, "depth", depths)


def adders(kinds: Sequence[str] = ADDERS_BY) -> ScheduleParameter:
    """Vary the adders of floating-point sums: "auto" leaves the choice to the tool, "fabric" takes no DSPs."""
    if not kinds or any(kind not in ADDERS_BY for kind in kinds):
        raise StudyError(f"adders: {list(kinds)!r}", hint=f"known: {', '.join(ADDERS_BY)}")
    return ScheduleParameter(ADDERS, "sums", "impl", tuple(kinds))


def dataflow(kernel: str) -> ScheduleParameter:
    """Vary how the nests of a kernel follow each other: "in turn", or "at once", each working on another frame.

    What one nest hands to another is then a ping-pong buffer. No nest shares operators with another.
    """
    return ScheduleParameter(DATAFLOW, f"{kernel}:{kernel}", "nests", FLOWS)


class DeclaredSchedules(ScheduleChoice[tuple[Answer, ...]]):
    """Product of declared parameters, restricted to legal schedules of the program; one answer per parameter."""

    def __init__(self, parameters: Sequence[ScheduleParameter], device: FpgaDevice) -> None:
        super().__init__()
        self._parameters = tuple(parameters)
        self._device = device
        self._questions = lru_cache(MOST_KEPT)(lambda program: tuple(self._question(p, program) for p in parameters))
        self.names_kernels = any(":" in p.target for p in parameters)
        names = [p.name for p in parameters]
        for name in names:
            if names.count(name) > 1:
                raise StudyError(f"schedules: {name.removeprefix('schedule.')} is declared twice")

    def asked(self, program: CompiledProgram, ask: Ask) -> tuple[Answer, ...]:
        return tuple(map(ask, self._questions(program)))

    def decided(self, program: CompiledProgram, answers: tuple[Answer, ...]) -> Decided:
        directives, depths = [], []
        for parameter, value in zip(self._parameters, answers, strict=True):
            if parameter.kind == "depth":
                depths.append((parameter.target, int(value)))
            elif not _is_neutral(parameter.kind, value) or (parameter.kind == INTERFACE and parameter.options):
                directives.append(parameter.directive(value))
        return tuple(directives), tuple(sorted(depths))

    def _question(self, parameter: ScheduleParameter, program: CompiledProgram) -> Question:
        legal = self._legal(parameter, program)
        if not legal:
            raise StudyError(
                f"schedules: no value of {parameter.name.removeprefix('schedule.')} is legal for {program.name}",
                hint=_LEGAL[parameter.kind],
            )
        if isinstance(parameter.values[0], str):
            words = [str(v) for v in parameter.values]
            return Question.word(parameter.name, [str(v) for v in legal], words)
        numbers = [int(v) for v in legal]
        least, most = int(parameter.values[0]), int(parameter.values[-1])
        return Question.number(parameter.name, numbers, most, min(1, least))

    def _legal(self, parameter: ScheduleParameter, program: CompiledProgram) -> list[Answer]:
        """The values that a program allows.

        Raises:
            StudyError: when it has nothing of the name that they are about.
        """
        kind, target, values = parameter.kind, parameter.target, list(parameter.values)
        if kind in ("pipeline", "unroll"):
            trips = _trips(program, target)
            return [v for v in values if kind == "pipeline" or all(_divides(v, t) for t in trips)]
        if kind == "partition":
            dim = int(dict(parameter.options)["dim"])
            extents = [shape[dim - 1] for shape in _shapes(program, target) if len(shape) >= dim]
            return [v for v in values if extents and all(_divides(v, extent) for extent in extents)]
        if kind == "place":
            if target in [stream.name for stream in program.streams]:
                return [v for v in values if v == "auto" or (v == PIPO and target in block_streams(program))]
            _shapes(program, target)
            edges = edge_tensors(program)
            values = [v for v in values if v != PIPO and (v != "stream" or target in edges)]
            return [v for v in values if v != "uram" or self._device.limit("uram") > 0]
        if kind == INTERFACE:
            _shapes(program, target)
            edge = edge_tensors(program).get(target)
            return [v for v in values if v != AXIS or (edge is not None and has_axis(edge.tensor.dtype))]
        if kind == "pack":
            widths = {tensor.name: tensor.dtype.bits for tensor in program.tensors}
            if target not in widths:
                raise _nothing("tensor", target, widths)
            return [v for v in values if int(v) <= self._device.external.port_bits and int(v) % widths[target] == 0]
        if kind == DATAFLOW:
            scope = target.partition(":")[0]
            classes = [task_class for _, task_class, is_meant in _classes(scope, program) if is_meant]
            if not classes:
                raise _nothing("kernel", scope, [kernel.name for kernel in program.kernels])
            chains = all(is_chain(read_nest(task_class.body.mlir)) for task_class in classes)
            return [v for v in values if chains or v == FLOWS[0]]
        streams = [stream.name for stream in program.streams]
        if kind == "depth" and target not in streams:
            raise _nothing("stream", target, streams)
        return values

    def describe(self) -> dict[str, object]:
        return {"schedules": [[p.name, list(p.values)] for p in self._parameters]}


def _is_neutral(kind: str, value: Answer) -> bool:
    """Return whether a value means no directive."""
    neutral = {"pipeline": 0, "unroll": 1, "partition": 1, LANES: 1, INTERFACE: M_AXI, DATAFLOW: FLOWS[0]}
    return value == neutral.get(kind, "auto")


def _trips(program: CompiledProgram, target: str) -> list[int | None]:
    """Trip counts of the loops that a target names; None where one varies.

    Raises:
        StudyError: when there is none.
    """
    scope, _, name = target.rpartition(":")
    found: list[int | None] = []
    known = []
    for kernel, task_class, is_meant in _classes(scope, program):
        trips = {loop.source: loop.trips for loop in loops_of(read_nest(task_class.body.mlir).body)}
        known += [f"{kernel.name}:{own}" for own in task_class.loop_names]
        for number in task_class.called(name) if is_meant else ():
            rounds = trips.get(number)
            found.append(rounds.constant if rounds is not None and rounds.is_constant else None)
    if not found:
        raise _nothing("loop", target, known)
    return found


def _shapes(program: CompiledProgram, target: str) -> list[tuple[int, ...]]:
    """Shapes of the arrays that a target names.

    Raises:
        StudyError: when there is none.
    """
    scope, _, name = target.rpartition(":")
    known = [tensor.name for tensor in program.tensors]
    if name in known and is_region(scope or REGION, program):
        return [program.tensors[known.index(name)].shape]
    found = []
    for kernel, task_class, is_meant in _classes(scope, program):
        arrays = read_nest(task_class.body.mlir).arrays
        known += [f"{kernel.name}:{array}" for array in arrays]
        found += [arrays[name].shape] if is_meant and name in arrays else []
    if not found:
        raise _nothing("array", target, known)
    return found


def _classes(scope: str, program: CompiledProgram) -> Iterator[tuple[Kernel, TaskClass, bool]]:
    """All task classes, and whether directives of a scope concern them."""
    for kernel in program.kernels:
        is_meant = is_region(scope or REGION, program) or kernel_of(scope, program) == kernel.name
        for task_class in kernel.classes:
            yield kernel, task_class, is_meant


def _nothing(what: str, target: str, known: Iterable[str]) -> StudyError:
    names = dict.fromkeys(known)
    hint = f"{did_you_mean(target, names)}known: {', '.join(names) or 'none'}"
    return StudyError(f"schedules: there is no {what} {target!r}", hint=hint)


def _divides(factor: Answer, extent: int | None) -> bool:
    return extent % int(factor) == 0 if extent is not None else int(factor) == 1
