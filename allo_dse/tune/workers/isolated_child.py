"""The child process in which an isolated evaluator runs: `main()`, with a descriptor as the first argument.

It reads a `PickledStudy` and a rung from its parent, then genes, one JSON line each, and answers each
with a JSON line on a descriptor of its own; what the evaluator prints goes to a file. It ends with its parent, and
leaves no temporary files.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from allo_dse.common.processes import adopt_orphans, end_descendants, limit_memory
from allo_dse.common.records import JsonObject

from ..declare.pickled_study import PickledStudy
from ..store.record import Measurement
from ..store.run_info import error_text
from .evaluate_one import InProcessEvaluator


def main() -> None:
    """Serve the parent until it closes the pipe; temporary files are in a directory of its own."""
    files = os.environ["TMPDIR"]
    replies = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    os.set_inheritable(replies.fileno(), False)
    requests = os.fdopen(os.dup(0), "rb")  # standard input is empty for the evaluator and its children
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    adopt_orphans()
    with suppress(OSError):  # be the first to be killed when memory runs out, not the process that keeps the results
        Path("/proc/self/oom_score_adj").write_text("1000")
    _serve(requests, replies, files)


def _serve(requests: BinaryIO, replies: IO[str], files: str) -> None:
    head = json.loads(requests.readline())
    try:
        study = msgspec.msgpack.decode(requests.read(head["bytes"]), type=PickledStudy).load()
        rung_evaluator, space = InProcessEvaluator(study.make_evaluators()[head["rung"]], Measurement()), study.space
    except BaseException as error:
        _send(replies, {"error": error_text(error)})
        raise
    if head["memory_bytes"] is not None:
        limit_memory(head["memory_bytes"])
    _send(replies, {"ready": True})
    lines = _Requests(requests, files)
    while (line := lines.next()) is not None:
        candidate = space.decode_genes(json.loads(line))
        if candidate is None:
            _send(replies, {"error": "the child's space does not contain this design"})
            continue
        found = rung_evaluator.run(0, candidate)
        _send(replies, {"metrics": found.metrics, "error": found.error, "seconds": found.seconds})


def _send(replies: IO[str], values: JsonObject) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    replies.write(json.dumps(values) + "\n")
    replies.flush()


class _Requests:
    """Lines from the parent, read by a thread, which ends this process and its children when the parent is gone, and
    removes their files."""

    def __init__(self, source: BinaryIO, files: str) -> None:
        self._source, self._files = source, files
        self._line: bytes | None = None
        self._ready = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in iter(self._source.readline, b""):
            self._line = line
            self._ready.release()
        end_descendants()
        shutil.rmtree(self._files, ignore_errors=True)
        os._exit(0)

    def next(self) -> bytes | None:
        self._ready.acquire()
        return self._line
