"""Targets: the tools that can build the winner of a study, each with rules beside the device's limits.

    target.check(design.mapping)       # list[Violation]; empty when the target builds it

The backend of a device has its targets by name. `MODEL` builds anything that the hardware can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from allo_dse.common.records import Frozen
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Violation
from allo_dse.space.backend import DeviceMapping

if TYPE_CHECKING:
    from allo_dse.device.device import Device


class Rule(Protocol):
    """A restriction of a tool that builds designs. An instance without state; see `backends/npu/allo/rules.py`.

    Attributes:
        name: one of `violation.CONSTRAINTS` or `TARGET_CONSTRAINTS`.
        source: where it is written down: module and function of the builder, or a document.
        folded: True for a rule about nodes, whose number must fit the device; False for one about the program only.
    """

    name: str
    source: str
    folded: bool

    def check(self, subject: Any) -> Iterable[Violation]:
        """Yield the violations of this rule by a mapping, as the target's `subject` presents it."""


class Target(Frozen):
    """A tool that builds designs.

    Attributes:
        rules: checked in this order, those of the program first.
        replaced: limits of the device that its rules state in their own way.
        most_tasks: largest number of tasks of a program; None without a limit.
        fifo_depth: the depth of the object FIFOs that it makes for tensors; None when it makes any.
        respell: rewrites a fold in equivalent patterns that it can build; None when it builds any.
        subject: converts a mapping to the object that rules check, with data that several of them share.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    replaced: frozenset[str] = frozenset()
    most_tasks: int | None = None
    fifo_depth: int | None = None
    respell: Callable[[ProgramGraph, MeshFold, Device], MeshFold] | None = None
    subject: Callable[[Any], Any] = lambda mapping: mapping

    def check(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the device limits and target rules that a mapping breaks; none when it can be built.

        Checks stop early to keep searches fast. A program that no fold saves is not checked further, nor is a mapping
        with early violations (`DeviceMapping.violations` has all limits that it exceeds). Rules about nodes apply, one
        after the other, only to mappings that break nothing else.
        """
        found = self.check_soon(mapping) or self._kept(mapping.violations)
        if not self.rules:
            return found
        subject = self.subject(mapping)
        for rule in self.rules:
            if rule.folded and not found:
                found += rule.check(subject)
        return found

    def check_soon(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the violations that are quick to find: rules the program breaks, or else early ones of the mapping."""
        return self.check_program(mapping) or self._kept(mapping.early_violations)

    def _kept(self, violations: Iterable[Violation]) -> list[Violation]:
        return [violation for violation in violations if violation.constraint not in self.replaced]

    def check_program(self, mapping: DeviceMapping) -> list[Violation]:
        """Return the rules that the program breaks under any fold."""
        if not self.rules:
            return []
        subject = self.subject(mapping)
        return [violation for rule in self.rules if not rule.folded for violation in rule.check(subject)]


MODEL = Target("model")
