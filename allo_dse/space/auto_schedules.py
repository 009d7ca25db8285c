"""Schedules derived from a program: what is worth varying about its loops, arrays and tensors on an FPGA.

Per nest of loops: at which level it is pipelined (everything inside is unrolled), by how much that loop is unrolled
besides, and with which interval. Arrays then get the banks that the copies of their accesses need, a part of them, or
none: their factors follow from the loops and are not searched one by one. Tensors are copied in words of a power of two
elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.device import Device, FpgaDevice
from ..backends.fpga.nest import Access, Branch, Loop, Nest, Node, Op, read_nest
from ..backends.fpga.plan import REGION
from ..errors import StudyError
from ..frontend.program import CompiledProgram, Directive, Kernel, TaskClass
from .encoding import Gene
from .schedules import (
    Answer,
    Ask,
    Decided,
    DeclaredSchedules,
    Question,
    ScheduleParameter,
    Schedules,
    number,
    word,
)

MOST_COPIES = 4096  # operations of one round that unrolling may make
INTERVALS = (1, 2, 4, 8)
SHARES = ("all", "half", "none")
LEVELS = ("innermost", "1 out", "2 out", "3 out")


@dataclass(frozen=True)
class Chain:
    """Loops around each other, outermost first, with their trip counts; the last one has none inside."""

    loops: tuple[Loop, ...]
    names: tuple[str, ...]
    trips: tuple[int, ...]

    def copies(self, level: int) -> int:
        """Copies of the innermost body when the loop `level` steps further out is pipelined."""
        return math.prod(self.trips[len(self.trips) - level :])


class AutoSchedules:
    """Decides the schedule of any program by the rules of this module.

    Args:
        declared: what the study says itself; it comes last and so wins.
    """

    def __init__(self, device: FpgaDevice, declared: Schedules | None = None) -> None:
        self._device = device
        self._declared = declared
        self._chains: dict[str, list[Chain]] = {}

    def describe(self) -> Any:
        own = self._declared.describe() if self._declared else []
        return ["auto", MOST_COPIES, list(INTERVALS), list(SHARES), own]

    def decide(self, program: CompiledProgram, ask: Ask) -> Decided:
        directives: list[Directive] = []
        unrolled: dict[tuple[str, str], int] = {}
        for kernel in program.kernels:
            for position, chain in enumerate(self._chains_of(kernel)):
                directives += self._nest(kernel.name, position, chain, ask, unrolled)
        directives += self._banks(program, ask, unrolled)
        said, depths = self._declared.decide(program, ask) if self._declared else ((), ())
        directives += self._tensors(program, said, ask)
        return (*directives, *said), depths

    def _chains_of(self, kernel: Kernel) -> list[Chain]:
        """The nests of a kernel's classes; those of the same loops count once."""
        key = "".join(task_class.body.mlir for task_class in kernel.classes)
        if key not in self._chains:
            found: dict[tuple[str, ...], Chain] = {}
            for task_class in kernel.classes:
                for chain in _chains(read_nest(task_class.body.mlir), task_class):
                    found.setdefault(chain.names, chain)
            self._chains[key] = list(found.values())
        return self._chains[key]

    def _nest(
        self, kernel: str, position: int, chain: Chain, ask: Ask, unrolled: dict[tuple[str, str], int]
    ) -> Iterator[Directive]:
        name = f"schedule.{kernel}.{position}"
        most = min(MOST_COPIES, self._device.limit("dsp"))
        levels = [n for n in range(min(len(chain.names), len(LEVELS))) if chain.copies(n) <= most]
        level = LEVELS.index(str(_asked(ask, word(f"{name}.level", [LEVELS[n] for n in levels], LEVELS))))
        at = len(chain.names) - 1 - level
        loop, trips = chain.names[at], chain.trips[at]
        factors = [f for f in range(1, trips + 1) if trips % f == 0 and f * chain.copies(level) <= most]
        factor = int(_asked(ask, number(f"{name}.unroll", factors, most)))
        interval = int(_asked(ask, Question(f"{name}.interval", INTERVALS, Gene(1, INTERVALS[-1], "log"))))
        yield Directive("pipeline", kernel, loop, {"initiation_interval": interval})
        if factor > 1:
            yield Directive("unroll", kernel, loop, {"factor": factor})
        unrolled[kernel, loop] = factor
        for inner, count in zip(chain.names[at + 1 :], chain.trips[at + 1 :], strict=True):
            unrolled[kernel, inner] = count

    def _banks(
        self, program: CompiledProgram, ask: Ask, unrolled: Mapping[tuple[str, str], int]
    ) -> Iterator[Directive]:
        """Partitions that give the copies of each access a bank of its own, as far as the answer wants."""
        needed = needed_banks(program, unrolled)
        for (scope, array), dims in sorted(needed.items()):
            if all(factor <= self._device.arrays.ports for factor in dims.values()) and len(dims) < 2:
                continue
            share = str(_asked(ask, word(f"schedule.banks.{scope}.{array}", SHARES, SHARES)))
            for dim, factor in sorted(dims.items()):
                wanted = {"all": factor, "half": max(1, factor // 2), "none": 1}[share]
                if wanted > 1:
                    options = {"dim": dim, "factor": wanted, "partition_type": "cyclic"}
                    yield Directive("partition", scope, array, options)

    def _tensors(self, program: CompiledProgram, said: Sequence[Directive], ask: Ask) -> Iterator[Directive]:
        """Widths of copies, for tensors that are copied and whose width nobody has decided."""
        every = (*program.schedule, *said)
        kept = {d.name for d in every if d.kind == "pack" or d.options.get("memory") == "onchip"}
        for tensor in program.tensors:
            bits = tensor.dtype.bits
            if not tensor.shape or tensor.name in kept or bits > self._device.external.port_bits:
                continue
            widths = [bits << n for n in range(10) if bits << n <= self._device.external.port_bits]
            width = int(_asked(ask, number(f"schedule.pack.{tensor.name}", widths, self._device.external.port_bits)))
            if width > bits:
                yield Directive("pack", REGION, tensor.name, {"bits": width})


def _asked(ask: Ask, question: Question) -> Answer:
    return ask(question) if len(question.values) > 1 else question.values[0]


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


def needed_banks(
    program: CompiledProgram, unrolled: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], dict[int, int]]:
    """Per array, as (scope, name), the banks per dimension that the copies of its accesses are spread over."""
    needed: dict[tuple[str, str], dict[int, int]] = {}
    for kernel in program.kernels:
        for task_class in kernel.classes:
            nest = read_nest(task_class.body.mlir)
            tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports}
            for access, factors in _accesses(nest.body, kernel.name, task_class, unrolled, {}):
                array = nest.arrays[access.array]
                own = array.argument is None
                key = (kernel.name, array.name) if own else (REGION, tensors.get(array.argument or 0, array.name))
                banks = needed.setdefault(key, {})
                for dim, form in enumerate(access.index):
                    spread = math.prod(f for v, f in factors.items() if form is not None and form.factor(v))
                    factor = math.gcd(spread, array.shape[dim]) if spread > 1 else 1
                    if factor > 1:
                        banks[dim + 1] = max(banks.get(dim + 1, 1), factor)
    return {key: dims for key, dims in needed.items() if dims}


def _accesses(
    nodes: Sequence[Node],
    kernel: str,
    task_class: TaskClass,
    unrolled: Mapping[tuple[str, str], int],
    factors: Mapping[int, int],
) -> Iterator[tuple[Access, Mapping[int, int]]]:
    for node in nodes:
        if isinstance(node, Loop):
            name = task_class.loops[node.source].name if node.source is not None else ""
            factor = unrolled.get((kernel, name), 1)
            yield from _accesses(node.body, kernel, task_class, unrolled, {**factors, node.variable: factor})
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _accesses(side, kernel, task_class, unrolled, factors)
        elif isinstance(node, Op) and node.access is not None and not node.block and node.access.index:
            yield node.access, factors


def schedules_of(declared: str | Sequence[Any], device: Device) -> Schedules | None:
    """What a study's `schedules=` means: "auto", schedule parameters, or both in a list; None for no choice at all.

    Raises:
        StudyError: for anything else, and for a device that has no schedules.
    """
    parts = [declared] if isinstance(declared, str) else list(declared)
    if not parts:
        return None
    parameters = [part for part in parts if isinstance(part, ScheduleParameter)]
    for part in parts:
        if part != "auto" and not isinstance(part, ScheduleParameter):
            raise StudyError(
                f"schedules: {part!r} is not a schedule parameter",
                hint='use "auto", pipeline, unroll, partition, memory, pack, stream_depth',
            )
    if not isinstance(device, FpgaDevice):
        raise StudyError(f"schedules: {device.name} is no FPGA", hint="NPU designs have folds and parameters only")
    own = DeclaredSchedules(parameters, device) if parameters else None
    return AutoSchedules(device, own) if "auto" in parts else own
