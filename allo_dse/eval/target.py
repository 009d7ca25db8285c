"""Targets: the backends that can build the winner of a study, each with rules beside the device's limits.

    TARGETS["allo"].check(NpuMapping(vmg, device))       # list[Violation]; empty when Allo builds it

`"allo"`: designs that Allo's AIE backend builds, up to the vendor's tools. `"model"`: anything the hardware can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from allo_dse.backends.npu.allo.program_rules import MOST_TASKS
from allo_dse.backends.npu.allo.respell import with_fewer_transfers
from allo_dse.backends.npu.allo.rule import Rule, Subject
from allo_dse.backends.npu.allo.rules import ALLO_RULES, FIFO_DEPTH
from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import Hopeless
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering, Violation

if TYPE_CHECKING:
    from allo_dse.backends.npu.mapping import NpuMapping
    from allo_dse.device.device import Device, NpuDevice
    from allo_dse.space.backend import DeviceMapping


class Target(Struct, frozen=True):
    """A tool that builds designs.

    Attributes:
        rules: checked in this order, those of the program first.
        replaced: limits of the device that its rules state in their own way.
        most_tasks: largest number of tasks of a program; None without a limit.
        fifo_depth: the depth of the object FIFOs that it makes for tensors; None when it makes any.
        respell: rewrites a fold in equivalent patterns that it can build; None when it builds any.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    replaced: frozenset[str] = frozenset()
    most_tasks: int | None = None
    fifo_depth: int | None = None
    respell: Callable[[ProgramGraph, MeshFold, Device], MeshFold] | None = None

    def check(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the device limits and target rules that a mapping breaks; none when it can be built.

        Checks stop early to keep searches fast. A program that no fold saves is not checked further, nor is a mapping
        that exceeds the limits of cores (`NpuMapping.violations` has all limits that it exceeds). Rules about nodes
        apply, one after the other, only to mappings that break nothing else.
        """
        found = self.check_soon(mapping) or self._kept(mapping.violations)
        subject = Subject(cast("NpuMapping", mapping))
        for rule in self.rules:
            if rule.folded and not found:
                found += rule.check(subject)
        return found

    def check_soon(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the violations that are quick to find: rules the program breaks, or else limits of cores."""
        return self.check_program(mapping) or self._kept(mapping.early_violations)

    def _kept(self, violations: Iterable[Violation]) -> list[Violation]:
        return [violation for violation in violations if violation.constraint not in self.replaced]

    def check_program(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the rules that the program breaks under any fold."""
        subject = Subject(cast("NpuMapping", mapping))
        return [violation for rule in self.rules if not rule.folded for violation in rule.check(subject)]


class Buildable(Struct, frozen=True):
    """A compile-time check that some design of a program can be built by a target for a device.

    It raises `Hopeless` as soon as this is ruled out.

    Attributes:
        buffering: the least that every design has.
    """

    target: Target
    device: Device
    buffering: Buffering

    @property
    def name(self) -> str:
        return self.target.name

    def tasks(self, count: int) -> None:
        most = self.target.most_tasks
        if most is not None and count > most:
            raise Hopeless(f"target {self.name!r} does not build programs of more than {most:,} tasks")

    def ports(self, ports: Sequence[TensorPort]) -> None:
        if self._npu is None:
            return
        from allo_dse.backends.npu.fold_bounds import (
            task_excess,  # imports devices and the simulator, which is slow
        )

        if excess := task_excess(ports, self._npu, self.buffering):
            raise Hopeless(str(excess))

    def program(self, program: Program) -> None:
        if self._npu is None:
            return
        from allo_dse.backends.npu.mapping import NpuMapping

        for task_class in program.task_classes:
            self.ports(task_class.tensor_ports)
        if refused := self.target.check_program(NpuMapping(program.vmg, self._npu, self.buffering)):
            raise Hopeless(str(refused[0]))

    @property
    def _npu(self) -> NpuDevice | None:
        from allo_dse.device.device import NpuDevice

        return self.device if isinstance(self.device, NpuDevice) else None


TARGETS: Mapping[str, Target] = {
    "allo": Target("allo", ALLO_RULES, frozenset({"host_buffers"}), MOST_TASKS, FIFO_DEPTH, with_fewer_transfers),
    "model": Target("model"),
}


def target(name: str | None, device: Device) -> Target:
    """Return a target by name; by default Allo for NPUs and the model for everything else.

    Raises:
        AlloDseError: for an unknown name, or a target that does not build for the device.
    """
    npu = device.family == "npu"
    found = TARGETS.get(name if name is not None else "allo" if npu else "model")
    if found is None:
        raise AlloDseError(f"there is no target {name!r}", hint=f"targets are {', '.join(TARGETS)}")
    if found.rules and not npu:
        raise AlloDseError(
            f"target {found.name!r} builds for NPUs, and {device.name} is none", hint='use target="model"'
        )
    return found
