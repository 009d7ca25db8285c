"""Choice of the tasks that compute their values in a run that only needs times.

Tasks whose times depend on values compute theirs, and so do all that feed them: the nodes that put to their streams,
directly or not, and the tasks that share an array with one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..codegen.lowering.signature import Signature
from ..network.network import IntArray, Network, Tasks
from ..network.stream_ends import UNKNOWN, stream_ends

BoolArray = NDArray[np.bool_]


def tasks_with_payload(network: Network, signatures: Mapping[str, Signature], needs: Mapping[str, bool]) -> BoolArray:
    """Per task whether it must compute its values. `needs` says of which bodies the times depend on values."""
    found = np.zeros(network.task_count, bool)
    for first, group in network.numbered_groups:
        if isinstance(group, Tasks):
            found[first : first + len(group)] = needs[group.body]
    if not found.any():
        return found
    if _has_hidden_streams(network, signatures):
        return np.ones(network.task_count, bool)
    ends = stream_ends(network, signatures)
    joined = (ends.producer != UNKNOWN) & (ends.consumer != UNKNOWN)
    source, target = network.task_node[ends.producer[joined]], network.task_node[ends.consumer[joined]]
    task, array = _shared_arrays(network, signatures)
    # The least closed set: it only grows, so it is found. Several tasks of a node may use one end of a stream, so all
    # tasks of a node are taken together.
    while True:
        nodes = np.zeros(network.node_count, bool)
        nodes[network.task_node[found]] = True
        nodes[source[nodes[target]]] = True
        more = nodes[network.task_node]
        arrays = np.zeros(len(network.tensors) + 1, bool)
        arrays[array[more[task]]] = True
        more[task[arrays[array]]] = True
        if (more == found).all():
            return found
        found = more


def streams_with_payload(network: Network, signatures: Mapping[str, Signature], tasks: BoolArray) -> BoolArray:
    """Per stream whether its tokens carry bytes: those that a task with payload puts or gets."""
    if tasks.all() or not tasks.any():
        return np.full(network.stream_count, tasks.any())
    ends = stream_ends(network, signatures)
    result = np.zeros(network.stream_count, bool)
    for end in (ends.producer, ends.consumer):
        known = end != UNKNOWN
        result[known] |= tasks[end[known]]
    return result


def _has_hidden_streams(network: Network, signatures: Mapping[str, Signature]) -> bool:
    """Return whether bodies compute stream numbers, so that it is not known which task feeds which."""
    bodies = {g.body for g in network.groups if isinstance(g, Tasks)}
    return any(p.computed for body in bodies for p in signatures[body].parameters)


def _shared_arrays(network: Network, signatures: Mapping[str, Signature]) -> tuple[IntArray, IntArray]:
    """Pairs of a task and the position in `network.tensors` of an array that it is given (past the end if unknown)."""
    starts = np.array([t.ctypes.data for t in network.tensors], np.int64)
    ends = starts + np.array([t.nbytes for t in network.tensors], np.int64)
    order = np.argsort(starts)
    tasks, arrays = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first, group in network.numbered_groups:
        if isinstance(group, Tasks):
            signature = signatures[group.body]
            for column, parameter in zip(signature.columns, signature.parameters, strict=True):
                if parameter.kind != "tensor" or not len(group.words):
                    continue
                address = group.words[:, column]
                place = np.searchsorted(starts[order], address, side="right") - 1
                known = order[np.maximum(place, 0)] if len(order) else np.zeros(len(address), np.int64)
                inside = (place >= 0) & (address < ends[known]) if len(order) else np.zeros(len(address), bool)
                tasks.append(first + np.arange(len(address)))
                arrays.append(np.where(inside, known, len(starts)))
    return np.concatenate(tasks), np.concatenate(arrays)
