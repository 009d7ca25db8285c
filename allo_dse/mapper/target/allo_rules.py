"""What Allo's AIE backend builds, up to the vendor's tools: rules about folded graphs.

Source of all rules: github.com/cornell-zhang/allo, commit a098603.

`docs/allo_target.md` lists the rules and how often they agree with Allo.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..model.movement import LOCKS_PER_END, StreamFlow
from ..model.violation import Violation
from .allo_program import PROGRAM_RULES
from .core_memory import core_memory
from .creation_order import by_position
from .interfaces import PORTS_PER_CORE, PortShortage
from .placer import NotPlaced
from .requests import full_queues, unanswered
from .rule import Rule, Subject
from .stream_layouts import crowded_memory_tile, turned_streams
from .stream_rules import ChainedLoops, ChainedTensors, RolledStreams, TokenOrder
from .transfers import NoTransfer, TransferPlan

FIFO_DEPTH = 2
"""Depth of the object FIFOs of tensors: `CodeGenerator.aie_codegen`."""
MOST_COMPARING_S = 120
SECONDS_PER_ROUNDS_CUBED = 3e-9
"""Of two nodes. Measured: 21 pairs with 512 rounds take 8 s, with 1,024 rounds 78 s."""


class CorePorts:
    """A node has two tensors in each direction; arguments for one tensor are merged only when there are more."""

    name, folded = "allo_core_ports", True
    source = "allo.backend.aie.mapping.ComputationGraph.get_global_io"

    def check(self, subject: Subject) -> Iterator[Violation]:
        for own in subject.interfaces:
            if isinstance(own, PortShortage):
                where = subject.node_name(own.node)
                yield Violation(self.name, where, own.needed, PORTS_PER_CORE, ", ".join(own.tensors))
                return


class Transfers:
    """Tiles that do not lie next to each other need a transfer each, and each of them ports."""

    name, folded = "allo_transfers", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.map_data_transfer"

    def check(self, subject: Subject) -> Iterator[Violation]:
        refusal = subject.transfers
        if isinstance(refusal, NoTransfer):
            first = refusal.stream[0]
            detail = (
                f"Allo has no ports left for {subject.node_name(first.node)}; tiles lie next to each "
                "other where nodes take them by turns (cyclic), not where each has a block"
            )
            if refusal.parts:
                detail = f"Allo spreads its transfer over {refusal.parts} channels, and rows of tiles do not divide so"
            yield Violation(self.name, f"tensor {first.port.tensor.name}", 1, 0, detail)


class Rounds:
    """Nodes whose tiles may lie next to each other are compared round by round, a round being an iteration of a bundle.

    For every round of the one, Allo goes through those of the other, and looks each up in a list of those it has seen.
    """

    name, folded = "allo_rounds", True
    source = "MulticastInterface._contiguous_data_transfer in allo.backend.aie.mlir_codegen.CodeGenerator"

    def check(self, subject: Subject) -> Iterator[Violation]:
        runs = subject.transfers
        if not isinstance(runs, tuple):
            return
        rounds: dict[str, list[int]] = {}
        for run in runs:
            rounds.setdefault(run.sample.port.tensor.name, []).extend(len(s[0].tiles) for s in run.streams)
        seconds = sum((len(own) - 1) * max(own) ** 3 for own in rounds.values()) * SECONDS_PER_ROUNDS_CUBED
        if seconds > MOST_COMPARING_S:
            most = max(map(max, rounds.values()))
            detail = f"Allo compares nodes round by round, of which there are up to {most:,}; use larger tiles"
            yield Violation(self.name, "tensors", math.ceil(seconds), MOST_COMPARING_S, detail)


class Requests:
    """What the host queues at once has to fit, and a result has to be on its way whenever it waits."""

    name, folded = "allo_requests", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, runtime sequence"

    def check(self, subject: Subject) -> Iterator[Violation]:
        runs = subject.transfers
        if not isinstance(runs, tuple):
            return
        queue = next(full_queues(runs), None)
        if queue is not None:
            detail = "per iteration of the outermost bundle; tiles that are needed again are requested again"
            yield Violation(self.name, queue.where, queue.needed, queue.limit, detail)
            return
        group = unanswered(runs)
        if group is not None:
            detail = f"Allo waits for a result once it has requested {group} iterations, and none is on its way"
            yield Violation(self.name, "the host", 1, 0, detail)


class Fifos:
    """Every stream that no bundle merges with another is an object FIFO of its own, with two locks at each end."""

    name, folded = "core_locks", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos"

    def check(self, subject: Subject) -> Iterator[Violation]:
        out: dict[int, list[StreamFlow]] = {}
        for stream in subject.fifos:
            out.setdefault(stream.source, []).append(stream)
        many = {node: streams for node, streams in out.items() if any(s.count > 1 for s in streams)}
        limit = subject.device.core.locks
        for node, streams in many.items():
            group, _ = subject.group_of(node)
            tensors = next(len(tiles.users) for tiles in subject.view.groups if tiles.group is group)
            needed = LOCKS_PER_END * (tensors + sum(s.count for s in streams))
            if needed > limit:
                detail = ", ".join(f"{s.count} FIFOs of {s.stream}" for s in streams)
                yield Violation(self.name, subject.node_name(node), needed, limit, detail)
                return


class Placement:
    """Nodes that exchange tokens are laid out in strings, which must not run out of columns."""

    name, folded = "allo_placement", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.map_core_func_to_physical_tiles"

    def check(self, subject: Subject) -> Iterator[Violation]:
        refusal = subject.cores
        if isinstance(refusal, NotPlaced):
            detail = (
                "Allo finds no core for it: it lays nodes that exchange tokens side by side, column by column, and "
                "those that do so in a circle twice; fewer nodes, or fewer streams between them, leave room"
            )
            yield Violation(self.name, subject.node_name(refusal.node), 1, 0, detail)


class Memory:
    """FIFOs are at the cores where Allo puts them, and every array that a task declares or computes has its place."""

    name, folded = "core_memory", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator: aie_codegen, build_core_function; allo_opt"

    def check(self, subject: Subject) -> Iterator[Violation]:
        if isinstance(subject.cores, NotPlaced) or not isinstance(subject.plan, TransferPlan):
            return
        largest = max(core_memory(subject, subject.cores, FIFO_DEPTH), key=lambda own: own.total)
        limit = subject.device.core.memory_bytes
        if largest.total > limit:
            yield Violation(self.name, subject.node_name(largest.node), largest.total, limit, str(largest))


class StreamLayouts:
    """Operands and results of matrix products that pass through streams change their layout in a memory tile."""

    name, folded = "allo_stream_layout", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos; utils.Stream"

    def check(self, subject: Subject) -> Iterator[Violation]:
        turned = turned_streams(subject.program, subject.device.architecture)
        flows = [flow for flow in by_position(subject.vmg, subject.fifos) if flow.stream in turned]
        both = next((flow for flow in flows if turned[flow.stream]), None)
        plan, cores = subject.plan, subject.cores
        if both is not None:
            detail = "a result of one product is an operand of the next, and Allo turns a stream's layout once"
            yield Violation(self.name, f"stream {both.stream}", 1, 0, detail)
        elif isinstance(plan, TransferPlan) and not isinstance(cores, NotPlaced) and flows:
            ports = [plan.memory_ports(tile) for tile in range(plan.memory_tiles)]
            crowded = crowded_memory_tile(flows, cores, ports)
            if crowded is not None:
                detail = (
                    f"from {subject.node_name(crowded.source)}: its layout changes in a memory tile, and Allo finds "
                    "none with a channel left; fewer cores for what is multiplied, or fewer tensors, leave some"
                )
                yield Violation(self.name, f"stream {crowded.stream}", 1, 0, detail)


ALLO_RULES: tuple[Rule, ...] = (
    *PROGRAM_RULES,
    CorePorts(),
    Transfers(),
    Rounds(),
    Requests(),
    Fifos(),
    RolledStreams(),
    ChainedLoops(),
    ChainedTensors(),
    Placement(),
    StreamLayouts(),
    TokenOrder(),
    Memory(),
)
