"""Schedules derived from a program: choices for its loops, arrays and tensors on an FPGA.

Each kernel has a number of copies of the innermost bodies of its loop nests, and an interval. A nest is pipelined at
the level, and its loop unrolled by the factor, that make this number of copies, or the next smaller one. Nests with
little work may make fewer copies. Arrays get the banks that let the copies access them in every cycle, or half as many:
these factors follow from the loops and are not searched one by one. Tensors are copied in words of a power of two
elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from allo_dse.common.errors import StudyError
from allo_dse.common.records import MOST_KEPT, Frozen
from allo_dse.compiler.program.compiled import REGION, CompiledProgram, Directive
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.space.choice import Answer, Ask, Question

from .nests import (
    BANKS,
    INTERVALS,
    MINOR,
    MOST_COPIES,
    SHARES,
    Copies,
    KernelChains,
    NestAccess,
    Nests,
    needed_banks,
    uses_of,
)
from .schedules import (
    ADDERS_BY,
    Decided,
    DeclaredSchedules,
    ScheduleChoice,
    ScheduleParameter,
    adders,
)

_ADDERS = Question.word("schedule.adders", ADDERS_BY, ADDERS_BY)


class _Facts(Frozen):
    """Facts that the schedules of a program follow from.

    Attributes:
        chains: of each kernel that has loops.
        uses: accesses of each kernel, by class.
        written: names of the tensors that tasks write.
        adds_floats: True with floating-point sums, for which there are adders with and without DSPs.
    """

    chains: Sequence[KernelChains]
    uses: Mapping[str, Sequence[Sequence[NestAccess]]]
    written: frozenset[str]
    adds_floats: bool

    @classmethod
    def of(cls, program: CompiledProgram, device: FpgaDevice) -> _Facts:
        return cls(
            tuple(found for kernel in program.kernels if (found := KernelChains.of(kernel, device)) is not None),
            {kernel.name: uses_of(kernel) for kernel in program.kernels},
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
        self._facts = lru_cache(MOST_KEPT)(lambda program: _Facts.of(program, device))
        self._banks = lru_cache(MOST_KEPT)(self._banks_for)
        self._widths = lru_cache(MOST_KEPT)(self._widths_of)
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
            if any(copies > 1 for (copies, *_), _ in nests) and str(ask(chains.banks)) == "half":
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
        needed: dict[tuple[str, str], dict[int, int]] = {}
        for chains, options in zip(facts.chains, copies, strict=True):
            unrolled = chains.unrolled(options)
            for uses in facts.uses[chains.kernel]:
                for place, banks in needed_banks(uses, unrolled).items():
                    most = needed.setdefault(place, {})
                    most.update((dim, max(factor, most.get(dim, 1))) for dim, factor in banks.items())
        shapes = {use.array: use.shape for every in facts.uses.values() for uses in every for use in uses}
        for (scope, array), dims in sorted(needed.items()):
            # A task's own array is read and written in a round; a tensor that is only read has both ports for that.
            spare = scope == REGION and array not in facts.written
            half = scope in halved or (scope == REGION and halved == {kernel.name for kernel in program.kernels})
            rest = (2 if spare else 1) * (2 if half else 1)
            for dim, factor in sorted(dims.items(), key=lambda item: -item[1]):
                saved = math.gcd(rest, factor)
                rest //= saved
                if factor // saved > 1:
                    whole = factor // saved == shapes[scope, array][dim - 1]
                    kind = "complete" if whole else "cyclic"
                    split = {"dim": dim, "factor": factor // saved, "partition_type": kind}
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
                hint='use "auto" or parameters such as dse.unroll("kernel:i", [1, 2]); docs/fpga.md lists them',
            )
    if not isinstance(device, FpgaDevice):
        raise StudyError(f"schedules: {device.name} is no FPGA", hint="NPU designs have folds and parameters only")
    own = DeclaredSchedules(parameters, device) if parameters else None
    return AutoSchedules(device, own) if "auto" in parts else own
