"""Rules of a target and the subject that they check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup, short_node_name
from allo_dse.mapper.violation import Violation

from ..movement.movement import StreamFlow
from .interfaces import Interface, PortShortage, fifo_counts, node_interfaces, tensor_order
from .placer import Core, NotPlaced, place_graph
from .transfers import NoTransfer, TransferPlan, TransferRun

if TYPE_CHECKING:
    from allo_dse.device.device import NpuDevice

    from ..mapping import NpuMapping
    from ..movement.view import MappingView


class Subject(Frozen, eq=False, dict=True):
    """A mapping on an NPU to be built, with data that several rules derive from it once."""

    mapping: NpuMapping

    @property
    def vmg(self) -> VMG:
        return self.mapping.vmg

    @property
    def program(self) -> CompiledProgram:
        return self.vmg.program

    @property
    def device(self) -> NpuDevice:
        return self.mapping.device

    @property
    def view(self) -> MappingView:
        """Tiles and streams of the nodes."""
        return self.mapping.view

    @cached_property
    def fifos(self) -> tuple[StreamFlow, ...]:
        """The streams between nodes, with the number of FIFOs that Allo makes of them."""
        counts = fifo_counts(self.vmg, self.view.links.between)
        return tuple(
            replace(flow, count=counts.get((flow.stream, flow.source, flow.target), 1))
            for flow in self.view.links.between
        )

    @cached_property
    def interfaces(self) -> list[list[Interface] | PortShortage]:
        """The interfaces of each node after merging."""
        return list(node_interfaces(self.vmg))

    @cached_property
    def plan(self) -> TransferPlan | NoTransfer | None:
        """Transfer plan of the tensors, or the refusal of a stream without ports; None if a node has too many
        interfaces.
        """
        by_tensor: dict[int, list[Interface]] = {number: [] for number in tensor_order(self.program)}
        for own in self.interfaces:
            if isinstance(own, PortShortage):
                return None
            for one in own:
                by_tensor[one.tensor].append(one)
        plan = TransferPlan(self.device.array.columns, self.device.array.columns)
        try:
            plan.add_tensors(interfaces for interfaces in by_tensor.values() if interfaces)
        except NoTransfer as refusal:
            return refusal
        return plan

    @property
    def transfers(self) -> tuple[TransferRun, ...] | NoTransfer | None:
        """The transfers, or the stream that finds no ports; None when a node has too many interfaces."""
        return tuple(self.plan.runs) if isinstance(self.plan, TransferPlan) else self.plan

    @cached_property
    def cores(self) -> Mapping[int, Core] | NotPlaced:
        """Core of each node if nodes exchange tokens, or the node that finds none; else empty."""
        if not self.fifos or not isinstance(self.plan, TransferPlan):
            return {}
        try:
            return place_graph(self.vmg, self.fifos, self.plan.runs, self.device.array.columns)
        except NotPlaced as refusal:
            return refusal

    def node_name(self, node: int) -> str:
        """A node as messages name it."""
        group, position = self.group_of(node)
        return f"core {short_node_name(self.program, group, position)}"

    def group_of(self, node: int) -> tuple[NodeGroup, int]:
        """The group of a node, and its position in it."""
        for group in self.vmg.groups:
            if node < group.count:
                return group, node
            node -= group.count
        raise IndexError(node)


class AlloRule(Struct):
    """A rule of Allo, as `eval.target.Rule`."""

    name: str
    source: str
    folded: bool
    check: Callable[[Subject], Iterator[Violation]]


def rule(
    name: str, source: str, *, folded: bool = True
) -> Callable[[Callable[[Subject], Iterator[Violation]]], AlloRule]:
    """Make a rule of a function that yields a mapping's violations; arguments as in `eval.target.Rule`."""
    return partial(AlloRule, name, source, folded)
