"""Schedules derived from a program: choices for its loops, arrays and tensors on an FPGA.

Each kernel has a number of copies of the innermost bodies of its loop nests, and an interval. A nest is pipelined at
the level, and its loop unrolled by the factor, that make this number of copies, or the next smaller one. Nests with
little work may make fewer copies. Arrays get the banks that let the copies access them in every cycle, or half as many:
these factors follow from the loops and are not searched one by one. Tensors are copied in words of a power of two
elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.compiler.ir.nest import Access, Branch, Loop, Nest, Node, Op, read_nest
from allo_dse.compiler.program.compiled import CompiledProgram, Directive
from allo_dse.compiler.program.kernel import Kernel, TaskClass
from allo_dse.compiler.program.shared_tensors import REGION
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.space.choice import Answer, Ask, Question

from .schedules import (
    ADDERS_BY,
    DECIDED_KEPT,
    PROGRAMS_KEPT,
    Decided,
    DeclaredSchedules,
    ScheduleChoice,
    ScheduleParameter,
    adders,
)

# Loop nests of kernels, and the numbers of copies of their bodies.


MOST_COPIES = 4096  # operations of one round that unrolling may make
INTERVALS = (1, 2, 4)
BANKS = ("all", "half")
SHARES = ("all", "slow", "quarter", "one")
SLOW = 8  # times the interval of the others
MINOR = 16  # nests with fewer rounds than the largest one's by this factor may be treated differently


class Chain(Struct, frozen=True):
    """Loops around each other, outermost first, with their trip counts; the last one has none inside."""

    loops: tuple[Loop, ...]
    names: tuple[str, ...]
    trips: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """Number of executions of the innermost body."""
        return math.prod(self.trips)

    def at_most(self, wanted: int, most: int) -> Copies:
        """Return the option with the most copies up to `wanted`.

        Nests share operators, so a nest with more copies than the others would set the cost of all.
        """
        return _at_most(self.trips, wanted, most)


Copies: TypeAlias = tuple[int, int, int]
"""Number of copies of the innermost body, the pipelined level, and the unroll factor of its loop.

Level 0 is the innermost loop; everything inside the pipelined level is unrolled. A loop that would be unrolled
completely is inside, and the one around it is pipelined.
"""


@lru_cache(maxsize=1 << 12)
def _options(trip_counts: tuple[int, ...], most: int) -> tuple[Copies, ...]:
    found: dict[int, Copies] = {}
    inside = 1
    for level, trips in enumerate(reversed(trip_counts)):
        for factor in range(1, trips + 1):
            if trips % factor == 0 and factor * inside <= most:
                found[factor * inside] = (factor * inside, level, factor)
        inside *= trips
    return tuple(sorted(found.values()))


@lru_cache(maxsize=1 << 14)
def _at_most(trip_counts: tuple[int, ...], wanted: int, most: int) -> Copies:
    options = _options(trip_counts, most)
    return max((option for option in options if option[0] <= wanted), default=options[0])


@lru_cache(maxsize=1 << 12)
def _wanted(trip_counts: tuple[tuple[int, ...], ...], most: int) -> tuple[int, ...]:
    """The numbers of copies that chains can make of their innermost bodies."""
    return tuple(sorted({option[0] for trips in trip_counts for option in _options(trips, most)}))


Nests: TypeAlias = tuple[tuple[Copies, int], ...]
"""Copies of each chain of a kernel, and its pipeline interval."""


class KernelChains(Struct, frozen=True):
    """Questions about the loop nests of a kernel.

    Attributes:
        chains: loop chains of its classes; chains of the same loops count once.
        most: largest number of copies.
        shares: question of each chain that may be treated differently.
    """

    kernel: str
    chains: Sequence[Chain]
    most: int
    copies: Question
    interval: Question
    shares: Sequence[Question | None]
    banks: Question

    @classmethod
    def of(cls, kernel: Kernel, device: FpgaDevice) -> KernelChains | None:
        """Return the questions of a kernel; None without loops."""
        found: dict[tuple[str, ...], Chain] = {}
        for task_class in kernel.classes:
            for chain in _chains(read_nest(task_class.body.mlir), task_class):
                found.setdefault(chain.names, chain)
        if not found:
            return None
        chains = tuple(found.values())
        # Unfolded tasks have hardware of their own, and a copy's operator takes at least one DSP, which as many copies
        # share as the longest interval has cycles.
        most = max(1, min(MOST_COPIES, INTERVALS[-1] * device.limit("dsp") // kernel.task_count))
        name, largest = f"schedule.{kernel.name}", max(chain.rounds for chain in chains)
        return cls(
            kernel.name,
            chains,
            most,
            Question.number(f"{name}.copies", _wanted(tuple(chain.trips for chain in chains), most), MOST_COPIES),
            Question.number(f"{name}.interval", INTERVALS, INTERVALS[-1]),
            tuple(
                Question.word(f"{name}.{number}.share", SHARES, SHARES) if chain.rounds * MINOR < largest else None
                for number, chain in enumerate(chains)
            ),
            Question.word(f"{name}.banks", BANKS, BANKS),
        )

    def asked(self, ask: Ask) -> Nests:
        copies, interval = int(ask(self.copies)), int(ask(self.interval))
        nests = []
        for chain, question in zip(self.chains, self.shares, strict=True):
            share = "all" if question is None else str(ask(question))
            target = {"quarter": max(1, copies // 4), "one": 1}.get(share, copies)
            pace = interval * SLOW if share == "slow" else interval
            nests.append((chain.at_most(target, self.most), pace))
        return tuple(nests)

    def directives(self, nests: Nests) -> Iterator[Directive]:
        """Pipeline and unroll the nests."""
        for chain, ((_, level, factor), interval) in zip(self.chains, nests, strict=True):
            loop = chain.names[len(chain.names) - 1 - level]
            yield Directive("pipeline", self.kernel, loop, {"initiation_interval": interval})
            if factor > 1:
                yield Directive("unroll", self.kernel, loop, {"factor": factor})

    def unrolled(self, options: Sequence[Copies]) -> dict[tuple[str, str], int]:
        """By kernel and name of a loop, how many copies of its body are made."""
        found: dict[tuple[str, str], int] = {}
        for chain, (_, level, factor) in zip(self.chains, options, strict=True):
            at = len(chain.names) - 1 - level
            found[self.kernel, chain.names[at]] = factor
            for inner, count in zip(chain.names[at + 1 :], chain.trips[at + 1 :], strict=True):
                found[self.kernel, inner] = count
        return found


def _chains(nest: Nest, task_class: TaskClass) -> Iterator[Chain]:
    for loops in _paths(nest.body, ()):
        names, trips = [], []
        for loop in loops:
            constant = loop.trips is not None and loop.trips.is_constant
            if loop.source is None or not constant:
                break
            names.append(task_class.loops[loop.source].name)
            trips.append(loop.trips.constant if loop.trips is not None else 0)
        else:
            yield Chain(loops, tuple(names), tuple(trips))


def _paths(nodes: Iterable[Node], outer: tuple[Loop, ...]) -> Iterator[tuple[Loop, ...]]:
    """From the outermost to each innermost loop."""
    for node in nodes:
        if isinstance(node, Loop):
            inner = list(_paths(node.body, (*outer, node)))
            yield from inner or [(*outer, node)]
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _paths(side, outer)


_ADDERS = Question.word("schedule.adders", ADDERS_BY, ADDERS_BY)


class _Facts(Struct, frozen=True):
    """Facts that the schedules of a program follow from.

    Attributes:
        chains: of each kernel that has loops.
        spreads: of all accesses.
        written: names of the tensors that tasks write.
        adds_floats: True with floating-point sums, for which there are adders with and without DSPs.
    """

    chains: Sequence[KernelChains]
    spreads: Sequence[Spread]
    written: frozenset[str]
    adds_floats: bool

    @classmethod
    def of(cls, program: CompiledProgram, device: FpgaDevice) -> _Facts:
        return cls(
            tuple(found for kernel in program.kernels if (found := KernelChains.of(kernel, device)) is not None),
            tuple(itertools.chain.from_iterable(map(spreads_of, program.kernels))),
            frozenset(port.tensor.name for port in program.tensor_ports if port.writes),
            _adds_floats(program),
        )


class _Answers(NamedTuple):
    """Attributes:
    nests: of each kernel that has loops. halved: the kernels with half the banks.
    said: answers about what is declared. widths: of the words that tensors are copied in, in bits.
    """

    nests: tuple[Nests, ...]
    halved: frozenset[str]
    fabric: bool
    said: tuple[Answer, ...]
    widths: tuple[tuple[str, int], ...]


class AutoSchedules(ScheduleChoice[_Answers]):
    """Decides the schedule of any program by the rules of this module.

    Args:
        declared: what the study says itself; it comes last and so wins.

    Attributes:
        names_kernels: whether what is declared is about loops or arrays of kernels.
    """

    def __init__(self, device: FpgaDevice, declared: DeclaredSchedules | None = None) -> None:
        super().__init__()
        self._device = device
        self._declared = declared
        self._facts = lru_cache(PROGRAMS_KEPT)(lambda program: _Facts.of(program, device))
        self._banks = lru_cache(DECIDED_KEPT)(self._banks_for)
        self._widths = lru_cache(DECIDED_KEPT)(self._widths_of)
        self.names_kernels = declared is not None and declared.names_kernels

    def describe(self) -> dict[str, object]:
        own = self._declared.describe()["schedules"] if self._declared else []
        words = [list(words) for words in (INTERVALS, BANKS, SHARES, ADDERS_BY)]
        return {"schedules": ["auto", "at most", MOST_COPIES, MINOR, *words, own]}

    def asked(self, program: CompiledProgram, ask: Ask) -> _Answers:
        facts, every, halved = self._facts(program), [], []
        for chains in facts.chains:
            nests = chains.asked(ask)
            every.append(nests)
            copied = any(factor > 1 for factor in chains.unrolled([option for option, _ in nests]).values())
            if copied and str(ask(chains.banks)) == "half":
                halved.append(chains.kernel)
        fabric = facts.adds_floats and str(ask(_ADDERS)) == "fabric"
        said = self._declared.asked(program, ask) if self._declared else ()
        widths = tuple((name, int(ask(question))) for name, question in self._widths(program, said))
        return _Answers(tuple(every), frozenset(halved), fabric, said, widths)

    def decided(self, program: CompiledProgram, answers: _Answers) -> Decided:
        directives: list[Directive] = []
        copies: list[tuple[Copies, ...]] = []
        for chains, nests in zip(self._facts(program).chains, answers.nests, strict=True):
            directives += chains.directives(nests)
            copies.append(tuple(option for option, _ in nests))
        directives += self._banks(program, tuple(copies), answers.halved)
        if answers.fabric:
            directives.append(adders().directive("fabric"))
        bits = {tensor.name: tensor.dtype.bits for tensor in program.tensors}
        wider = ((name, width) for name, width in answers.widths if width > bits[name])
        directives += (Directive("pack", REGION, name, {"bits": width}) for name, width in wider)
        said, depths = self._declared.decided(program, answers.said) if self._declared else ((), ())
        return (*directives, *said), depths

    def _banks_for(
        self, program: CompiledProgram, copies: tuple[tuple[Copies, ...], ...], halved: frozenset[str]
    ) -> tuple[Directive, ...]:
        """Partitions that let the copies of each access run in every cycle, or every second one."""
        facts, found = self._facts(program), []
        unrolled: dict[tuple[str, str], int] = {}
        for chains, options in zip(facts.chains, copies, strict=True):
            unrolled |= chains.unrolled(options)
        for (scope, array), dims in sorted(needed_banks(facts.spreads, unrolled).items()):
            # A task's own array is read and written in a round; a tensor that is only read has both ports for that.
            spare = scope == REGION and array not in facts.written
            half = scope in halved or (scope == REGION and halved == {kernel.name for kernel in program.kernels})
            rest = (2 if spare else 1) * (2 if half else 1)
            for dim, factor in sorted(dims.items(), key=lambda item: -item[1]):
                saved = math.gcd(rest, factor)
                rest //= saved
                if factor // saved > 1:
                    split = {"dim": dim, "factor": factor // saved, "partition_type": "cyclic"}
                    found.append(Directive("partition", scope, array, split))
        return tuple(found)

    def _widths_of(self, program: CompiledProgram, answers: tuple[Answer, ...]) -> tuple[tuple[str, Question], ...]:
        """Widths of copies, for tensors that are copied and whose width no directive has decided."""
        said = self._declared.decided(program, answers)[0] if self._declared else ()
        every = (*program.schedule, *said)
        kept = {d.name for d in every if d.kind == "pack" or d.options.get("memory") == "onchip"}
        most, found = self._device.external.port_bits, []
        for tensor in program.tensors:
            widths = [width for n in range(10) if (width := tensor.dtype.bits << n) <= most]
            if tensor.shape and tensor.name not in kept and widths:
                found.append((tensor.name, Question.number(f"schedule.pack.{tensor.name}", widths, most)))
        return tuple(found)


class Spread(Struct, frozen=True):
    """A dimension of an array that an access goes along.

    Attributes:
        array: scope and name. dim: 1-based. loops: kernels and names of the loops whose variables are in its index.
    """

    array: tuple[str, str]
    dim: int
    extent: int
    loops: frozenset[tuple[str, str]]


def needed_banks(
    spreads: Iterable[Spread], unrolled: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], dict[int, int]]:
    """Per array, as (scope, name), the banks per dimension that the copies of its accesses are spread over."""
    needed: dict[tuple[str, str], dict[int, int]] = {}
    for spread in spreads:
        copies = math.prod(unrolled.get(loop, 1) for loop in spread.loops)
        factor = math.gcd(copies, spread.extent) if copies > 1 else 1
        if factor > 1:
            banks = needed.setdefault(spread.array, {})
            banks[spread.dim] = max(banks.get(spread.dim, 1), factor)
    return needed


def spreads_of(kernel: Kernel) -> list[Spread]:
    """Return the array dimensions and loops of a kernel's accesses; equal ones count once."""
    found: dict[Spread, None] = {}
    for task_class in kernel.classes:
        nest = read_nest(task_class.body.mlir)
        tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports}
        for access, loops in _accesses(nest.body, kernel.name, task_class, {}):
            array = nest.arrays[access.array]
            own = array.argument is None
            key = (kernel.name, array.name) if own else (REGION, tensors.get(array.argument or 0, array.name))
            for dim, form in enumerate(access.index):
                if form is not None and not form.derived:
                    names = frozenset(name for variable, name in loops.items() if form.factor(variable))
                    found[Spread(key, dim + 1, array.shape[dim], names)] = None
    return list(found)


def _accesses(
    nodes: Sequence[Node], kernel: str, task_class: TaskClass, loops: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[Access, Mapping[int, tuple[str, str]]]]:
    """Accesses to elements, with the loops around them by their variables."""
    for node in nodes:
        if isinstance(node, Loop):
            name = task_class.loops[node.source].name if node.source is not None else ""
            yield from _accesses(node.body, kernel, task_class, {**loops, node.variable: (kernel, name)})
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _accesses(side, kernel, task_class, loops)
        elif isinstance(node, Op) and node.access is not None and not node.block and node.access.index:
            yield node.access, loops


def _adds_floats(program: CompiledProgram) -> bool:
    """Check for floating-point sums with a choice of adders, with or without DSPs: 64-bit floats leave none."""
    bodies = [task_class.body.mlir for task_class in program.task_classes]
    return any("arith.addf" in body or "arith.subf" in body for body in bodies) and not any("f64" in b for b in bodies)


def schedules_of(declared: str | Sequence[Any], device: Device) -> ScheduleChoice[Any] | None:
    """Return the choice that a study's `schedules=` declares; None for no choice at all.

    Args:
        declared: "auto", schedule parameters, or both in a list.

    Raises:
        StudyError: for anything else, and for a device that has no schedules.
    """
    parts = [declared] if isinstance(declared, str) or not isinstance(declared, Iterable) else list(declared)
    if not parts:
        return None
    parameters = [part for part in parts if isinstance(part, ScheduleParameter)]
    for part in parts:
        if part != "auto" and not isinstance(part, ScheduleParameter):
            raise StudyError(
                f"schedules: {part!r} is not a schedule parameter",
                hint='use "auto", pipeline, unroll, partition, memory, pack, stream_depth, adders',
            )
    if not isinstance(device, FpgaDevice):
        raise StudyError(f"schedules: {device.name} is no FPGA", hint="NPU designs have folds and parameters only")
    own = DeclaredSchedules(parameters, device) if parameters else None
    return AutoSchedules(device, own) if "auto" in parts else own
