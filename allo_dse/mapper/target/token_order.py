"""The order of tokens in FIFOs that bundles have merged: put as the producer's tasks run, got as the consumer's do.

    bundle [src_3, src_2, src_1, src_0]   read by p[0].get(), p[1].get(), ...     delivers 3 first

Mesh folds keep the order by construction (`JointFold`); graphs folded node by node are compared token by token.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allo_dse.program.index_maps import IntArray

from ..graph.tree import leaf_tasks
from ..model.violation import Violation
from .rule import Subject


class TokenOrder:
    """Streams that are one FIFO are read in the order in which they are written."""

    name, folded = "allo_token_order", True
    source = "allo.backend.aie.mapping.ComputationGraph.bundle_multi (streams take the first task's name)"

    def check(self, subject: Subject) -> Iterator[Violation]:
        if subject.vmg.mesh_fold is not None:
            return
        puts, gets = _uses(subject, "put"), _uses(subject, "get")
        for link in subject.fifos:
            if link.count > 1:  # FIFOs of their own
                continue
            put, got = puts.get((link.stream, link.source)), gets.get((link.stream, link.target))
            if put is None or got is None:
                continue
            put, got = put[np.isin(put, got)], got[np.isin(got, put)]
            if len(put) == len(got) and not np.array_equal(put, got):
                first = int(np.flatnonzero(put != got)[0])
                name = subject.program.stream_name
                detail = f"is read as {name(int(got[first]))} where {name(int(put[first]))} was written before"
                where = f"{subject.node_name(link.source)} to {subject.node_name(link.target)}"
                yield Violation(self.name, f"{where}, FIFO of {link.stream}", 1, 0, detail)


def _uses(subject: Subject, direction: str) -> dict[tuple[str, int], IntArray]:
    """Per stream array and node, the streams that its tasks put to or get from, in order."""
    program, found = subject.program, dict[tuple[str, int], list[tuple[int, int, int]]]()
    first_node = 0
    for group in subject.vmg.groups:
        tasks = group.leaves.tasks()
        kinds: dict[tuple[int, int], list[int]] = {}
        for leaf, task in enumerate(leaf_tasks(group.tree)):
            kinds.setdefault((task.kernel, task.cls), []).append(leaf)
        for (kernel, cls), leaves in kinds.items():
            pids = program.pids(kernel, tasks[:, leaves].reshape(-1))
            for place, port in enumerate(program.kernels[kernel].classes[cls].stream_ports):
                if port.direction != direction:
                    continue
                streams = program.first_stream[port.stream.name] + port.index.linear(pids)
                for number, row in enumerate(streams.reshape(len(tasks), -1).tolist()):
                    own = found.setdefault((port.stream.name, first_node + number), [])
                    own += [(leaf, place, stream) for leaf, stream in zip(leaves, row, strict=True)]
        first_node += group.count
    return {key: np.array([stream for _, _, stream in sorted(own)], np.int64) for key, own in found.items()}
