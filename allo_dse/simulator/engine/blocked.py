"""Who is blocked, and where, in a run that stopped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..codegen.lowering.signature import Signature
from ..codegen.run_time.record_fields import STATE_BITS, Node, State, Stream
from ..deadlock.explain import Blocked
from ..network.arena import Arena
from ..network.network import Network
from ..network.stream_ends import UNKNOWN, stream_ends
from .recording import operation_numbers


def blocked_tasks(network: Network, arena: Arena, signatures: Mapping[str, Signature]) -> list[Blocked]:
    """The tasks that wait in a run that stopped with nodes left."""
    ends = stream_ends(network, signatures)
    states = arena.nodes[:, Node.WAITS_IN] % (1 << STATE_BITS)
    nodes = np.flatnonzero(np.isin(states, [State.GET, State.PUT]))
    records = arena.nodes[nodes]
    tasks = network.order[arena.current_slot()[nodes]]
    streams = arena.stream_number(records[:, Node.WAITS_ON])
    ops = operation_numbers(network, tasks, records[:, Node.WAITS_IN])
    result = []
    for node, task, stream, op, clock in zip(
        nodes.tolist(), tasks.tolist(), streams.tolist(), ops.tolist(), records[:, Node.CLOCK].tolist(), strict=True
    ):
        getting = states[node] == State.GET
        peer = int((ends.producer if getting else ends.consumer)[stream])
        held = int(arena.streams[stream, Stream.TAIL] - arena.streams[stream, Stream.HEAD])
        result.append(
            Blocked(
                task=task,
                node=node,
                direction="get" if getting else "put",
                stream=stream,
                op=op,
                clock=clock,
                held=held,
                peer=None if peer == UNKNOWN else peer,
                peer_node=None if peer == UNKNOWN else int(network.task_node[peer]),
            )
        )
    return result
