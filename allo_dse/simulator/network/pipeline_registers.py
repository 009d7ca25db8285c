"""The pipelines of a network: whether their numbers make sense, and the registers that their puts need.

Interval, depth and stages are cost sites, so they belong to a network, not to compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError

from ..codegen.lowering.signature import Pipeline, Signature
from .network import IntArray, Network, Tasks


class Registers(Struct, frozen=True):
    """Attributes:
    per_node: puts that may wait in a node's pipeline; all 0 if operations everywhere are due in program order.
    per_stream: of these, those that may be of one stream.
    """

    per_node: IntArray
    per_stream: IntArray

    @property
    def any(self) -> bool:
        """True if the variant of compiled code with registers is needed; it uses them in every pipeline."""
        return bool(self.per_node.any())


def no_registers(network: Network) -> Registers:
    return Registers(np.zeros(network.node_count, np.int64), np.zeros(network.stream_count, np.int64))


def needed_registers(network: Network, signatures: Mapping[str, Signature]) -> Registers:
    """The registers of a network's pipelines.

    Raises:
        SimulationError: for an interval below 1, a stage outside of its pipeline, or a get due after one behind it.
    """
    registers = no_registers(network)
    in_order = True
    for first, group in network.numbered_groups:
        if isinstance(group, Tasks) and signatures[group.body].pipelines:
            ordered, needed = _per_task(network, group, signatures[group.body])
            in_order = in_order and ordered
            nodes = network.task_node[first : first + len(group)]
            np.maximum.at(registers.per_node, nodes, needed)
            for streams in _put_streams(network, group, signatures[group.body]):
                np.maximum.at(registers.per_stream, streams, needed if len(streams) == len(group) else needed.max())
    return no_registers(network) if in_order else registers


def _per_task(network: Network, group: Tasks, signature: Signature) -> tuple[bool, IntArray]:
    """Return whether operations are due in program order in all tasks of a group, and per task the puts that may
    wait."""
    bases, which = np.unique(group.words[:, 0], return_inverse=True)
    found = [[_deferred(signature.symbol, p, network.costs[base:]) for p in signature.pipelines] for base in bases]
    in_order = all(ordered for of_base in found for ordered, _ in of_base)
    return in_order, np.array([max(most for _, most in of_base) for of_base in found], np.int64)[which]


def _deferred(body: str, pipeline: Pipeline, costs: IntArray) -> tuple[bool, int]:
    """Return whether the operations of a pipeline are due in program order, and how many puts may wait at a time."""
    ii, depth = int(costs[pipeline.ii]), int(costs[pipeline.depth])
    stages = [0 if site is None else int(costs[site]) for site in pipeline.stages]
    if ii < 1 or not all(0 <= stage <= depth for stage in stages):
        raise SimulationError(
            f"task body {body!r} has a pipeline with interval {ii}, depth {depth} and stages {stages}; "
            "intervals are at least 1, stages from 0 to the depth"
        )
    # Behind an operation come the later ones of its round, and those of the next, of which the first is due at
    # ii + least.
    least = min(stages, default=0)
    for place, (stage, is_put) in enumerate(zip(stages, pipeline.is_put, strict=True)):
        if not is_put and stage > min([*stages[place + 1 :], ii + least]):
            raise SimulationError(
                f"task body {body!r} has a pipeline of interval {ii} with a get at stage {stage}, which is due after "
                "operations behind it: a body cannot go on without the token's value",
                hint="give its gets one stage, or run it without payload",
            )
    in_order = not stages or (stages == sorted(stages) and stages[-1] <= ii + stages[0])
    # A put leaves the registers at its stage: of the rounds begun until then, and of the next, puts can wait.
    return in_order, sum(pipeline.is_put) * (max(stages, default=0) // ii + 2)


def _put_streams(network: Network, group: Tasks, signature: Signature) -> Iterator[IntArray]:
    """Streams that tasks may put to: one per task, or all where a body computes their numbers."""
    for column, parameter in zip(signature.columns, signature.parameters, strict=True):
        if parameter.puts:
            yield np.arange(network.stream_count) if parameter.computed else group.words[:, column]
