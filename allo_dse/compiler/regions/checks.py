"""Checks across tasks, after all kernels are compiled: producers, consumers and counts of every stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from allo_dse.common.records import Frozen, Ints

from ..program.compiled import Kernel
from ..program.tensors import IntArray, StreamArray
from .region_sources import RegionSource
from .task_state import PortUse, Task

# Uses are counted per stream of an array, without listing tasks where a rule covers them all.
#
# Arrays in this module broadcast against the shape of a stream array: length 1 stands for "the same for all".


class Endpoint(Frozen, eq=False):
    """One put or get side: the use of an array's streams by tasks of a class.

    Attributes:
        users: the number of tasks that use each stream.
        tokens: the number of tokens they move through each, or None if it depends on data.
    """

    kernel: Kernel
    task: Task
    port: PortUse
    users: IntArray
    tokens: IntArray | None


def endpoint(kernel: Kernel, task: Task, port: PortUse) -> Endpoint:
    """The endpoint of a port with a known index: users and tokens are counted per stream.

    Along a mesh axis that a dimension of the array just follows from end to end, one task and stream stand for all.
    """
    assert port.index is not None
    mesh, tokens = task.kernel.mesh, np.asarray(0 if port.tokens is None else port.tokens)
    passed: dict[int, int] = {}  # such axes, with the dimension
    for axis, extent in enumerate(mesh):
        varying = [d for d, value in enumerate(port.index) if value.array.shape[axis] > 1]
        if task.mask.shape[axis] > 1 or (tokens.ndim and tokens.shape[axis] > 1) or len(varying) != 1:
            continue
        (dimension,) = varying
        unit = tuple(int(a == axis) for a in range(len(mesh)))
        if port.index[dimension].affine == (unit, 0) and port.stream.shape[dimension] == extent:
            passed[axis] = dimension
    arrays = [task.mask, *(v.array for v in port.index)] + ([tokens] if tokens.ndim else [])
    shape = tuple(1 if a in passed else max(x.shape[a] for x in arrays) for a in range(len(mesh)))
    same = math.prod(n for a, n in enumerate(mesh) if shape[a] == 1 and a not in passed)
    where = np.nonzero(np.broadcast_to(task.mask, shape))
    grid = tuple(1 if d in passed.values() else n for d, n in enumerate(port.stream.shape))
    index: tuple[Any, ...] = tuple(
        0 if d in passed.values() else np.broadcast_to(value.array, shape)[where] for d, value in enumerate(port.index)
    )
    users, moved = np.zeros(grid, np.int64), np.zeros(grid, np.int64)
    np.add.at(users, index, same)
    np.add.at(moved, index, same * (np.broadcast_to(tokens, shape)[where] if tokens.ndim else tokens))
    return Endpoint(kernel, task, port, users, moved if port.tokens is not None else None)


def at(array: IntArray, stream: Ints) -> int:
    """The entry of a broadcasting array for one stream."""
    return int(array[tuple(0 if n == 1 else i for i, n in zip(stream, array.shape, strict=True))])


def check_program(source: RegionSource, kernels: Sequence[Kernel], tasks: Sequence[Sequence[Task]]) -> list[str]:
    """Check the streams of a program; returns warnings.

    Raises:
        ProgramError: for a stream with two producers or consumers, with more gets than puts, or one that is read but
            never written; by strict rules also with more puts than gets.
    """
    ends: dict[tuple[str, str], list[Endpoint]] = {}
    for kernel, sets in zip(kernels, tasks, strict=True):
        for task in sets:
            for port in (part for use in task.ports.values() for part in use.fixed):
                ends.setdefault((port.stream.name, port.direction), []).append(endpoint(kernel, task, port))
    warnings: list[str] = []
    for stream in source.streams.values():
        puts, gets = ends.get((stream.name, "put"), []), ends.get((stream.name, "get"), [])
        for group, what in ((puts, "producers"), (gets, "consumers")):
            _check_single(stream, group, what)
        warnings.extend(_balance_warnings(source, stream, puts, gets))
        warnings.extend(_stream_warnings(stream, puts, gets))
    warnings.extend(dict.fromkeys(one for group in tasks for task in group for one in task.warnings))
    warnings.extend(_argument_warnings(source, kernels, tasks))
    return warnings


def _label(stream: StreamArray, index: Sequence[int]) -> str:
    return f"{stream.name}[{', '.join(map(str, index))}]" if stream.shape else stream.name


def _streams_where(condition: np.ndarray[Ints, np.dtype[np.bool_]]) -> Iterator[Ints]:
    """The streams for which a broadcasting condition holds (the first ones of those that broadcast)."""
    return map(tuple, np.argwhere(condition).tolist())


def _total(ends: Sequence[Endpoint], rank: int) -> IntArray:
    return sum((end.users for end in ends), np.zeros((1,) * rank, np.int64))


def _check_single(stream: StreamArray, ends: Sequence[Endpoint], what: str) -> None:
    """A stream connects one task to one task."""
    users = _total([end for end in ends if end.port.certain], len(stream.shape))
    for index in _streams_where(users > 1):
        found: dict[str, Endpoint] = {}
        for end in ends:
            if end.port.certain and at(end.users, index):
                assert end.port.index is not None
                mesh = end.kernel.mesh
                hit = np.broadcast_to(end.task.mask, mesh).copy()  # expands the mesh: for the message only
                for value, position in zip(end.port.index, index, strict=True):
                    hit &= np.broadcast_to(value.array == position, mesh)
                for pid in np.argwhere(hit)[:2].tolist():
                    found[end.kernel.task_name(pid)] = end
        if len(found) > 1:
            first, second = list(found)[:2]
            node = found[second].port.node
            found[second].task.fail(
                node,
                f"stream `{_label(stream, index)}` has two {what}: {first} and {second}",
                "a stream connects one task to one task; declare an array of streams",
            )


def _balance_warnings(
    source: RegionSource, stream: StreamArray, puts: Sequence[Endpoint], gets: Sequence[Endpoint]
) -> Iterator[str]:
    """As many puts as gets, where both are known: gets without a token would wait for ever, tokens may be left over."""
    rank = len(stream.shape)
    produced, consumed = _total(puts, rank), _total(gets, rank)
    put_tokens, gets_tokens = _tokens(puts, rank), _tokens(gets, rank)
    missing = (produced == 0) & ((consumed if gets_tokens is None else gets_tokens) > 0)
    for index in _streams_where(missing):
        end = next(e for e in gets if at(e.users, index))
        if end.port.certain:
            end.task.fail(end.port.node, f"stream `{_label(stream, index)}` is read but never written")
    if put_tokens is None or gets_tokens is None:
        return
    unequal = (produced > 0) & (consumed > 0) & (put_tokens != gets_tokens)
    if not unequal.any():
        return
    fatal = unequal & (source.rules.strict | (put_tokens < gets_tokens))
    index = next(_streams_where(fatal if fatal.any() else unequal))
    put = [end for end in puts if at(end.users, index)][-1]
    node = put.port.last or put.port.node  # the put that makes the tokens too many, or leaves them too few
    message = f"stream `{_label(stream, index)}`: {at(put_tokens, index)} puts, {at(gets_tokens, index)} gets"
    if fatal.any():
        is_left = at(put_tokens, index) > at(gets_tokens, index)
        hint = "every token that is put must be taken out" if is_left else "the last gets would wait for ever"
        put.task.fail(node, message, hint)
    yield f"{source.file.location(node)}: warning: {message}; what is left is lost"


def _tokens(ends: Sequence[Endpoint], rank: int) -> IntArray | None:
    known = [end.tokens for end in ends if end.tokens is not None]
    return sum(known, np.zeros((1,) * rank, np.int64)) if len(known) == len(ends) else None


def _stream_warnings(stream: StreamArray, puts: Sequence[Endpoint], gets: Sequence[Endpoint]) -> Iterator[str]:
    if stream.count == 0:
        return
    if not puts and not gets:
        yield f"{stream.location}: warning: stream `{stream.name}` is never used"
        return
    rank = len(stream.shape)
    unread = np.broadcast_to((_total(puts, rank) > 0) & (_total(gets, rank) == 0), stream.shape)
    count = int(unread.sum())
    if count == stream.count:
        yield f"{stream.location}: warning: stream `{stream.name}` is never read"
    elif count:
        first = next(_streams_where(unread))
        yield (
            f"{stream.location}: warning: {count} of {stream.count} streams of `{stream.name}` are never read, "
            f"such as {_label(stream, first)}"
        )


def _argument_warnings(
    source: RegionSource, kernels: Sequence[Kernel], tasks: Sequence[Sequence[Task]]
) -> Iterator[str]:
    used = set()
    for kernel, parsed, sets in zip(kernels, source.kernels, tasks, strict=True):
        passed = {position for task in sets for call in task.region_calls for position in call.arguments}
        for position, parameter in enumerate(parsed.parameters):
            used.add(parameter.tensor.name)
            ports = [c.tensor_ports[position] for c in kernel.classes]
            if position not in passed and not any(port.reads or port.writes for port in ports):
                where = source.file.location(parameter.node)
                yield f"{where}: warning: argument `{parameter.name}` of kernel `{kernel.name}` is never used"
    for name, node in source.tensor_nodes.items():
        if source.tensors[name].name not in used:
            yield f"{source.file.location(node)}: warning: argument `{name}` of region `{source.name}` is never used"
