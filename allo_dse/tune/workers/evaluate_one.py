"""Evaluating one design: in this process, or in a child process that may crash, hang or be killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import descendants, end_tree, python_running, tree_bytes
from allo_dse.common.records import JsonObject, replace
from allo_dse.eval.evaluator import Evaluator, Needs, full_name, needs
from allo_dse.space.space import Candidate

from ..declare.pickled_study import PickledStudy
from ..declare.spec import StudySpec
from ..store.log import json_bytes
from ..store.record import Measurement
from ..store.run_info import TEXT_LENGTH, error_text, valid

# Parent's side of an isolated evaluator: start, query, watch and end the child.


START_SECONDS = 300.0  # for the child to load the study, which may compile programs
WATCH_SECONDS = 0.1  # between checks of the child
MARK = "ALLO_DSE_CELL"  # environment variable of all processes that an isolated evaluator starts
DEFAULT_DEADLINE_SECONDS = 600.0  # least deadline for evaluators without one
DEFAULT_DEADLINE_FACTOR = 100.0  # times the median of measured durations
FIRST_DEADLINE_SECONDS = 86400.0  # until enough was measured: synthesis may take hours
MEASURED_BEFORE, MEASURED_LAST = 3, 64  # evaluations before the median counts, and in its window
PRINTED_BYTES = 64 << 10  # of a failed evaluation's output to keep
REPLY_BYTES = 16 << 20  # of an answer without a newline
MOST_PROCESSES = 1000  # running at once for a design: synthesis takes dozens
COUNT_SECONDS = 1.0  # between counts of processes
PRINTED_LIMIT = 16 << 20  # of output before its beginning is dropped
_CHILD = "allo_dse.tune.workers.isolated_child"


class _Ended(Exception):
    """The child did not answer, for the reason in the message."""


class Deadline:
    """Deadline of an evaluation.

    Args:
        deadline: the evaluator's own, in seconds; None derives it from the durations so far.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._measured: deque[float] = deque(maxlen=MEASURED_LAST)

    def learn(self, seconds: float) -> None:
        """Take in the duration of an evaluation that ended by itself."""
        self._measured.append(seconds)

    @property
    def seconds(self) -> float:
        if self._deadline is not None:
            return self._deadline
        if len(self._measured) < MEASURED_BEFORE:
            return FIRST_DEADLINE_SECONDS
        return max(DEFAULT_DEADLINE_SECONDS, DEFAULT_DEADLINE_FACTOR * statistics.median(self._measured))


class IsolatedEvaluator:
    """Evaluates in a child process with the study and one of its evaluators.

    The child and all its descendants are ended when they take too much time or memory. It is started when needed, and
    again after it died. Its temporary files have a folder of their own that is removed with it, because interrupted
    synthesis leaves hundreds of megabytes.

    Args:
        study: the study, for the child.
        needs: limits on time and memory for a design.
        blank: fields shared by all measurements made here; its rung selects the evaluator.
    """

    def __init__(self, study: StudySpec, needs: Needs, blank: Measurement) -> None:
        self._study, self._needs, self._blank = study, needs, blank
        self._deadline = Deadline(needs.deadline_s)
        self._process: subprocess.Popen[bytes] | None = None
        self._replies = -1
        self._rest = b""
        self._counted = time.monotonic()
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        # The child must write at the file's end even after this process has truncated it.
        fcntl.fcntl(self._printed, fcntl.F_SETFL, fcntl.fcntl(self._printed, fcntl.F_GETFL) | os.O_APPEND)

    def run(self, number: int, candidate: Candidate) -> Measurement:
        """Evaluate a design, of the proposal of that number.

        Raises:
            StudyError: when the child cannot even load the study.
        """
        started = time.perf_counter()
        if self._process is None:
            self._start()
        self._printed.truncate(0)
        try:
            self._write(json.dumps(candidate.genes).encode() + b"\n")
            reply = self._answer(self._deadline.seconds)
        except _Ended as ended:
            self._end()
            reply = {"error": str(ended), "seconds": time.perf_counter() - started}
        else:
            self._deadline.learn(reply.get("seconds") or 0.0)
        error, printed = reply.get("error"), self._tail() if reply.get("error") else ""
        return replace(
            self._blank, number=number, metrics=reply.get("metrics"), error=error, printed=printed,
            seconds=reply.get("seconds") or 0.0,
        )  # fmt: skip

    def _start(self) -> None:
        reading, writing = os.pipe()
        name, _, value = self._mark.partition("=")
        self._files = tempfile.TemporaryDirectory(prefix="allo-dse-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            python_running(_CHILD, str(writing)),
            stdin=subprocess.PIPE, stdout=self._printed, stderr=subprocess.STDOUT, pass_fds=(writing,),
            env={**os.environ, name: value, "TMPDIR": self._files.name}, start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        self._replies, self._rest = reading, b""
        os.set_blocking(reading, False)
        body = msgspec.msgpack.encode(PickledStudy.of(self._study))
        head = {"bytes": len(body), "rung": self._blank.rung, "memory_bytes": self._needs.memory_bytes}
        try:
            self._write(json.dumps(head).encode() + b"\n" + body)
            values = self._answer(START_SECONDS)
        except _Ended as ended:
            values = {"error": str(ended)}
        if "ready" not in values:
            printed = self._tail().strip()
            self._end()
            raise StudyError(
                f"the process for the isolated evaluator cannot start: {values.get('error')}",
                hint=printed.splitlines()[-1] if printed else "does the study file load by itself?",
            )

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError as error:
            raise _Ended(self._how_it_ended()) from error

    def _answer(self, seconds: float) -> JsonObject:
        """The child's next line.

        Raises:
            _Ended: when the child dies, takes too long or too much memory, or answers nonsense.
        """
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._replies], [], [], WATCH_SECONDS)
            data = os.read(self._replies, 1 << 20) if ready else None
            if data:
                self._rest += data
                if len(self._rest) > REPLY_BYTES:
                    raise _Ended(f"the evaluator's process answered with more than {REPLY_BYTES >> 20} MiB")
            else:
                self._watch(until, seconds, gone=data == b"")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise _Ended(f"the evaluator's process answered nonsense: {line[:80]!r}")
        return values

    def _watch(self, until: float, seconds: float, *, gone: bool) -> None:
        process = self._process
        assert process is not None
        if gone or process.poll() is not None:
            raise _Ended(self._how_it_ended())
        if time.monotonic() > until:
            raise _Ended(f"took longer than its deadline of {seconds:g} s and was ended")
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            self._counted = time.monotonic()
            if (count := len(descendants(process.pid))) > MOST_PROCESSES:
                raise _Ended(f"started {count:,} processes, more than {MOST_PROCESSES:,}, and was ended with them")
        if self._needs.memory_bytes is not None:
            used = tree_bytes(process.pid)
            if used > self._needs.memory_bytes:
                raise _Ended(f"used {used >> 20} MiB of memory, more than its {self._needs.memory_bytes >> 20} MiB")
        if os.fstat(self._printed.fileno()).st_size > PRINTED_LIMIT:
            self._printed.truncate(0)

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "the evaluator's process closed its pipe"
        if code >= 0:
            return f"the evaluator's process exited with code {code}"
        try:
            name = f"{signal.Signals(-code).name}: {signal.strsignal(-code)}"
        except ValueError:
            name = f"signal {-code}"
        return f"the evaluator's process was killed ({name})"

    def _tail(self) -> str:
        """Return the end of the child's output."""
        size = os.fstat(self._printed.fileno()).st_size
        data = os.pread(self._printed.fileno(), PRINTED_BYTES, max(0, size - PRINTED_BYTES))
        return data.decode(errors="replace").replace("\0", "")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        end_tree(process.pid, self._mark)
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        os.close(self._replies)
        assert self._files is not None
        self._files.cleanup()

    def close(self) -> None:
        """End the child and everything it started."""
        self._end()


INLINE_WORKER = "inline"
METRICS_BYTES = 1 << 20
"""Limit on the metrics of one design: a log keeps those of all."""
METRICS_LEVELS = 100
"""Limit on nested objects and lists in metrics; readers can handle about ten times as many."""


class RungEvaluator(Protocol):
    """Evaluates designs of one rung, one at a time. A misbehaving evaluator costs only the design at hand."""

    def run(self, number: int, candidate: Candidate) -> Measurement:
        """Evaluate a design, of the proposal of that number."""
        ...

    def close(self) -> None: ...


class InProcessEvaluator:
    """Evaluates in this process; an evaluator that raises, exits or returns nonsense costs that design only.

    Args:
        blank: fields shared by all measurements made here.
        interruptible: whether a user's Ctrl-C arrives in this process; else an interrupt comes from the evaluator.
    """

    def __init__(self, evaluator: Evaluator, blank: Measurement, *, interruptible: bool = False) -> None:
        self._evaluator, self._blank = evaluator, blank
        self._passed: tuple[type[BaseException], ...] = (KeyboardInterrupt,) if interruptible else ()

    def run(self, number: int, candidate: Candidate) -> Measurement:
        started = time.perf_counter()
        try:
            metrics: dict[str, Any] | None = checked(self._evaluator.evaluate(candidate.design))
            error = None
        except self._passed:
            raise
        except BaseException as problem:  # any error of an evaluator is a result, not a crash of the study
            metrics, error = None, error_text(problem)
        seconds = time.perf_counter() - started
        return replace(self._blank, number=number, metrics=metrics, error=error, seconds=seconds)

    def close(self) -> None:
        pass


def make_rung_evaluator(
    study: StudySpec, rung: int, evaluator: Evaluator, *, worker: str = "", asked: Needs | None = None
) -> RungEvaluator:
    """Return the object that evaluates designs at a rung.

    Args:
        worker: name of the worker.
        asked: needs that override the evaluator's own.
    """
    asked = asked or needs(evaluator)
    blank = Measurement(rung=rung, evaluator=full_name(evaluator), worker=worker)
    if asked.isolate:
        return IsolatedEvaluator(study, asked, blank)
    return InProcessEvaluator(evaluator, blank, interruptible=worker == INLINE_WORKER)


def checked(found: Any) -> JsonObject:
    """Metrics as the log keeps them.

    Raises:
        TypeError, ValueError: when an evaluator returned something that is not metrics.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate() returned {type(found).__name__}, not Metrics")
    data = json_bytes(dict(found))
    if len(data) > TEXT_LENGTH:
        data = json_bytes(valid(json.loads(data)))
    if len(data) > METRICS_BYTES:
        raise ValueError(f"evaluate() returned {len(data) >> 20} MiB of metrics, more than {METRICS_BYTES >> 20} MiB")
    kept: JsonObject = json.loads(data)
    if data.count(b"{") + data.count(b"[") > METRICS_LEVELS and _is_deeper(kept, METRICS_LEVELS):
        raise ValueError(f"evaluate() returned metrics nested more than {METRICS_LEVELS} levels deep")
    return kept


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether objects and lists are nested more than `levels` deep."""
    inside = [value]
    for _ in range(levels + 1):
        containers = [one.values() if isinstance(one, dict) else one for one in inside if isinstance(one, dict | list)]
        inside = [inner for one in containers for inner in one]
    return bool(containers)
