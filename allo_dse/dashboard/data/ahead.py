"""A long log read in several processes: the n-th of them turns every n-th piece of it into items."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, KeysView, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from msgspec import Struct

from allo_dse.common.processes import collect_rarely, python_running, usable_cores
from allo_dse.tune.store.record import Record
from allo_dse.tune.store.run_info import RunInfo

from .columns import Repeated, Values, as_numbers
from .follow import CHUNK_BYTES, LogFollower
from .reading import KEY, Batch, Intake, Item, Later

LONG = 32 << 20  # bytes; for shorter logs, starting processes costs more than it saves
MOST = 8  # processes: one reader can hardly keep up with more


class Task(Struct, frozen=True):
    """The share of a log that one of several processes reads: every `step`-th piece.

    Attributes:
        begin, end: offsets in the log; a line begins at the first.
        piece: bytes of each piece.
        first, step: the first piece, and from one to the next.
    """

    log: Path
    facts: RunInfo
    begin: int
    end: int
    piece: int
    first: int
    step: int


class Piece(NamedTuple):
    """The items parsed from the lines that begin in a piece of a log.

    Attributes:
        entries: how many these are.
        damaged: lines that are skipped.
        end: where the line after them begins; where the task does if there are none.
    """

    items: Sequence[Item]
    entries: int
    damaged: int
    end: int


def read_ahead(
    log: LogFollower, facts: RunInfo, known: KeysView[str], *, processes: int | None = None, piece: int = CHUNK_BYTES
) -> Iterator[Piece]:
    """The rest of a log as it is now, in order, if it is long. What is left when this ends is to be read without help:
    from the first entry on that makes no sense, from the first piece on that has a design of another piece as a new
    one, and everything of a log that took this one's place.

    Args:
        known: keys of the designs that there are rows of.
        processes: None for as many as there are cores, if the log is long.
    """
    begin, end = log.offset, log.size
    many = processes or (min(usable_cores(), MOST) if end - begin >= LONG else 1)
    if many == 1:
        return
    with ExitStack() as stack:
        tasks = [Task(log.path, facts, begin, end, piece, first, many) for first in range(many)]
        try:
            readers = [stack.enter_context(_reading(task)) for task in tasks]
        except OSError:  # no more processes are allowed here
            return
        for number in range(-((begin - end) // piece)):
            try:
                read: Piece = pickle.load(readers[number % many])
            except (EOFError, pickle.UnpicklingError):
                return
            if log.replaced() or any(isinstance(i, Batch) and not known.isdisjoint(i.keys) for i in read.items):
                return
            log.skip(read.end, read.damaged)
            yield read


@contextmanager
def _reading(task: Task) -> Iterator[IO[bytes]]:
    """Start a process that reads, and yield its output."""
    command = python_running(__name__)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(OSError), process.stdin as told:  # it may have ended already
                told.write(pickle.dumps(task))
            yield process.stdout
        finally:
            process.kill()


def main() -> None:
    """In a process that reads."""
    collect_rarely()
    for piece in pieces(pickle.load(sys.stdin.buffer)):
        pickle.dump(piece, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


def pieces(task: Task) -> Iterator[Piece]:
    """The pieces of a task, until one holds an entry that makes no sense.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: for such an entry.
    """
    log, known = LogFollower(task.log, task.piece), set[str]()
    intake = Intake(task.facts, known)
    for start in range(task.begin + task.first * task.piece, task.end, task.step * task.piece):
        lines, before = log.lines_of(start, min(start + task.piece, task.end)), log.damaged
        end = log.offset + sum(map(len, lines)) + len(lines)
        found, items = log.take(lines), list[Item]()
        if log.offset < end:
            return
        for item in intake.items(found):
            if isinstance(item, Batch):
                known.update(item.keys)
            elif isinstance(item, Later) and isinstance(item.entry, Record):
                known.add(item.entry.key)
            items.append(_packed(item) if isinstance(item, Batch) else item)
        yield Piece(items, len(found), log.damaged - before, end if lines else task.begin)


def _packed(batch: Batch) -> Batch:
    """The same, for another process: arrays take less time than lists."""
    columns = {name: (kind, () if name == KEY else _array(values)) for name, (kind, values) in batch.columns.items()}
    return batch._replace(columns=columns)


def _array(values: Values) -> Values:
    if isinstance(values, Repeated | np.ndarray):
        return values
    numbers = as_numbers(values)
    if numbers is not None:
        return numbers
    return Repeated.among(values) if set(map(type, values)) <= {str, type(None)} else values
