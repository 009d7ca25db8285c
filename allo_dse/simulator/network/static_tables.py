"""Task bodies as operation tables, if their stream operations are known without running them.

If all bodies of a network are known, and only times are wanted, it becomes a network of tables, which can be
extrapolated. It has the same tasks, nodes and streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from allo_dse.common.records import Frozen, replace

from ..codegen.signature import Signature
from ..codegen.static_steps import Move, Repeat, Spend, Steps
from ..run_time.records import MAX_NESTING, Code
from .network import IntArray, Network, Processes, Tasks
from .tables import Table

StepsOf = Callable[[str, Sequence[Mapping[int, int]]], Sequence[Steps] | None]
"""The steps of tasks, by their body's name and the values of their whole-number parameters."""


def as_tables(network: Network, steps_of: StepsOf, signatures: Mapping[str, Signature]) -> Network | None:
    """The network with a table process for each task; None if that is not known of all bodies."""
    rows, ports = [network.rows], [network.stream_ports]
    groups: list[Processes] = []
    row, port = len(network.rows) // 4, len(network.stream_ports)
    for group in network.groups:
        if isinstance(group, Processes):
            groups.append(group)
            continue
        signature = signatures[group.body]
        steps = steps_of(group.body, [{}])
        steps = steps_of(group.body, _numbers(group, signature)) if steps is None else list(steps) * len(group.words)
        made = None if steps is None else _tables(network, group, signature, steps)
        if made is None:
            return None
        rows.append(made.rows)
        ports.append(made.ports.ravel())
        count, width = made.ports.shape
        none = np.zeros(count, np.int64)
        bound = port + width * np.arange(count), none + len(network.resource_ports)
        groups.append(Processes(row + made.first_row, *bound, log_limit=none))
        row, port = row + len(made.rows) // 4, port + count * width
    return replace(
        network,
        groups=tuple(groups),
        rows=np.concatenate(rows),
        stream_ports=np.concatenate(ports),
        token_bytes=np.zeros_like(network.token_bytes),
    )


class _Tables(Frozen):
    """Tables of a group of tasks: their rows, per task the first of its rows, and the streams it is bound to."""

    rows: IntArray
    first_row: IntArray
    ports: IntArray


def _numbers(group: Tasks, signature: Signature) -> list[dict[int, int]]:
    """Per task the values of its whole-number parameters, which streams and tensors are not."""
    numbered = [i for i, p in enumerate(signature.parameters) if p.kind == "index" and not (p.gets or p.puts)]
    values = group.words[:, [signature.columns[i] for i in numbered]].tolist()
    return [dict(zip(numbered, row, strict=True)) for row in values]


def _tables(network: Network, group: Tasks, signature: Signature, steps: Sequence[Steps]) -> _Tables | None:
    """One table per set of costs and steps."""
    columns = signature.columns
    number: dict[Steps, int] = {}
    kind = [number.setdefault(of_task, len(number)) for of_task in steps]
    distinct = list(number)
    used = sorted(set().union(*map(_parameters, distinct)))
    port = {parameter: i for i, parameter in enumerate(used)}
    bases, which = np.unique(np.stack([group.words[:, 0], kind], axis=1), axis=0, return_inverse=True)
    parts, firsts, at = [], [], 0
    for base, of in bases.tolist():
        table = Table()
        if not _write(table, distinct[of], network.costs[base:], port):
            return None
        words = np.array([*table.words, Code.HALT, 0, 0, 0], np.int64)
        parts.append(words)
        firsts.append(at)
        at += len(words) // 4
    ports = group.words[:, [columns[parameter] for parameter in used]]
    rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return _Tables(rows, np.array(firsts, np.int64)[which.ravel()], ports)


def _parameters(steps: Steps) -> set[int]:
    """Positions of the parameters whose streams are used."""
    found: set[int] = set()
    for step in steps:
        if isinstance(step, Move):
            found.add(step.parameter)
        elif isinstance(step, Repeat):
            found |= _parameters(step.steps)
    return found


def _write(table: Table, steps: Steps, costs: IntArray, port: Mapping[int, int], nesting: int = 0) -> bool:
    """Add the steps to a table; False if tables cannot do them in the way of a body."""
    for step in steps:
        if isinstance(step, Spend):
            table.advance(int(costs[step.site]))
        elif isinstance(step, Move):
            (table.put if step.is_put else table.get)(port[step.parameter])
        else:
            if nesting + 1 >= MAX_NESTING:
                return False
            with table.repeat(step.count):
                if not _write(table, step.steps, costs, port, nesting + 1):
                    return False
    return True
