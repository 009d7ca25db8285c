"""The order of the gets and puts of every task: the part of T16 (docs/timing.md) that a program decides by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray, StreamArray
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.codegen.static_steps import Move, Repeat, Steps, static_steps
from allo_dse.simulator.network.tables import Table

from .ports import ClassTasks


class ClassOrder(Frozen, eq=False, dict=True):
    """The stream operations of the tasks of one class.

    Attributes:
        own: the tasks.
        first: position of the body's first parameter that is a stream.
        kinds: different orders of operations; `which`: per task, the one it follows.
        by_place: whether a task's place in the mesh decides its order.
    """

    own: ClassTasks
    first: int
    kinds: tuple[Steps, ...]
    which: IntArray
    by_place: bool = False

    @cached_property
    def streams(self) -> IntArray:
        """The numbers of the streams: (tasks, stream parameters)."""
        found = [np.broadcast_to(np.asarray(one), self.own.tasks.shape) for one in self.own.streams]
        return np.array(found, np.int64).reshape(len(found), -1).T

    @cached_property
    def tokens(self) -> list[dict[int, int]]:
        """Per kind the tokens that pass each stream parameter."""
        return [count_tokens(steps, {}) for steps in self.kinds]

    @cached_property
    def tables(self) -> list[Table]:
        """The kinds as operation tables, whose ports are the stream parameters."""
        return [exchange_table(steps, self.first) for steps in self.kinds]


def token_orders(classes: Iterable[ClassTasks]) -> tuple[ClassOrder, ...] | None:
    """The orders of all classes that use streams; None if data or the state of streams decides one of them."""
    found = []
    for own in classes:
        body = own.task_class.body
        if not own.task_class.stream_ports:
            continue
        if not body.streams or any(isinstance(binding, StreamArray) for binding in body.streams):
            return None
        text = Body(body.symbol, body.mlir)
        kinds: Sequence[Steps] | None = static_steps(text)
        which, by_place = np.zeros(len(own.tasks), np.int64), kinds is None
        if kinds is None:
            numbers = [dict(enumerate(pid)) for pid in zip(*(axis.tolist() for axis in own.pid), strict=True)]
            steps = static_steps(text, numbers)
            if steps is None:
                return None
            number = {of_task: at for at, of_task in enumerate(dict.fromkeys(steps))}
            kinds, which = tuple(number), np.array([number[of_task] for of_task in steps], np.int64)
        first = len(own.pid) + len(own.tiles) + len(own.task_class.state) + len(own.task_class.externals)
        found.append(ClassOrder(own, first, tuple(kinds), which, by_place))
    return tuple(found)


def count_tokens(steps: Steps, found: dict[int, int], times: int = 1, *, puts: bool | None = None) -> dict[int, int]:
    """Add the tokens that pass each stream parameter to `found`; with `puts`, only those of puts, or only of gets."""
    for step in steps:
        if isinstance(step, Move) and puts in (None, step.is_put):
            found[step.parameter] = found.get(step.parameter, 0) + times
        elif isinstance(step, Repeat):
            count_tokens(step.steps, found, times * step.count, puts=puts)
    return found


def exchange_table(steps: Steps, first: int) -> Table:
    """The gets and puts of some steps, without their costs; `first` is the position of the first stream parameter."""
    table = Table()
    _write(table, steps, first)
    return table


def _write(table: Table, steps: Steps, first: int) -> None:
    for step in steps:
        if isinstance(step, Move):
            (table.put if step.is_put else table.get)(step.parameter - first)
        elif isinstance(step, Repeat) and count_tokens(step.steps, {}):
            with table.repeat(step.count):
                _write(table, step.steps, first)


def early_puts(
    program: CompiledProgram, classes: Iterable[ClassTasks], orders: Sequence[ClassOrder] | None
) -> IntArray:
    """Per stream 1 if its producer puts to it before it gets as many tokens from another stream of the same array.

    Without orders, the first operations on both streams decide.
    """
    early = np.zeros(program.stream_count, np.int64)
    known = {id(order.own): order for order in orders or ()}
    for own in classes:
        ports = own.task_class.stream_ports
        if {port.stream.name for port in ports if port.direction == "put"}.isdisjoint(
            port.stream.name for port in ports if port.direction == "get"
        ):
            continue
        order = known.get(id(own))
        if order is not None:
            for kind, steps in enumerate(order.kinds):
                rows = order.streams[order.which == kind]
                for parameter in _early(own, order.first, steps):
                    early[rows[:, parameter - order.first]] = 1
            continue
        pids = np.stack(own.pid, axis=1)
        for place, port in enumerate(ports):
            later = (p for p in ports[place + 1 :] if p.direction == "get" and p.stream.name == port.stream.name)
            if port.direction == "put" and any(later):
                early[program.first_stream[port.stream.name] + port.index.linear(pids)] = 1
    return early


def _early(own: ClassTasks, first: int, steps: Steps) -> set[int]:
    """The parameters of streams that are put to early."""
    ways = _ways(steps, {})
    bound = (b if isinstance(b, StreamArray) else b.stream for b in own.task_class.body.streams)
    array = {n: stream.name for n, stream in enumerate(bound, first)}
    return {
        put
        for put, is_put in ways.items()
        for get, also_put in ways.items()
        if is_put and not also_put and array[put] == array[get] and _lead(steps, put, get)[0] > 0
    }


def _ways(steps: Steps, found: dict[int, bool]) -> Mapping[int, bool]:
    for step in steps:
        if isinstance(step, Move):
            found[step.parameter] = step.is_put
        elif isinstance(step, Repeat):
            _ways(step.steps, found)
    return found


def _lead(steps: Steps, put: int, get: int) -> tuple[int, int]:
    """Return the lead of puts over gets, in tokens: the largest, and the one at the end."""
    most = ahead = 0
    for step in steps:
        peak, net = 0, 0
        if isinstance(step, Move):
            net = (step.parameter == put) - (step.parameter == get)
            peak = max(0, net)
        elif isinstance(step, Repeat):
            peak, net = _lead(step.steps, put, get)
            peak, net = peak + max(0, (step.count - 1) * net), step.count * net
        most, ahead = max(most, ahead + peak), ahead + net
    return most, ahead
