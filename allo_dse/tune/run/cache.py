"""Results of evaluations, across runs.

One append-only file per evaluator, with lines as in the log of a run. The key of a result is the program's digest, the
design, and the key of its evaluator.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import file_name
from allo_dse.eval.evaluator import Evaluator, full_name
from allo_dse.space.space import Candidate

from ..declare.function_text import identity_text
from ..search.repeats import Repeating
from ..store.log import decode_line, encode_line

# Keys of an evaluator's results, across runs.


_PACKAGE = __name__.partition(".")[0]


def evaluator_key(evaluator: Evaluator) -> str:
    """Return an evaluator's name, version and digest of its source code.

    For evaluators from outside this package, add the data they were made with: an object's public attributes, or a
    function's closure, globals and defaults.
    """
    if isinstance(evaluator, Repeating):
        return f"{evaluator_key(evaluator.evaluator)} repeated"
    function = getattr(evaluator, "function", None)
    made_of: Any = type(evaluator) if function is None else function
    around = "" if made_of.__module__.partition(".")[0] == _PACKAGE else _surroundings(evaluator, function)
    return f"{full_name(evaluator)} {_source_digest(made_of)}{around}"


def _surroundings(evaluator: Evaluator, function: Any) -> str:
    if function is not None:
        return identity_text(function)
    public = {name: value for name, value in sorted(vars(evaluator).items()) if not name.startswith("_")}
    inherited = [one for kind in type(evaluator).__mro__ for one in vars(kind).values()]
    return identity_text([public, *(one for one in inherited if isinstance(one, FunctionType))])


@cache
def _source_digest(kind: Any) -> str:
    """Return a digest of an evaluator's code.

    The code is all of this package for its own evaluators, else the module of the class or function. In a notebook only
    the name counts.
    """
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode())
    if kind.__module__.partition(".")[0] == _PACKAGE:
        files = sorted(Path(__file__).parents[2].rglob("*.py"))
    else:
        try:
            files = [Path(inspect.getfile(kind))]
        except (TypeError, OSError):
            files = []
    for file in files:
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


SECONDS = 1e-4  # faster evaluations are not kept: a lookup takes as long
_KEY_BYTES = 32
_START = b'{"id":"'


class ResultCache:
    """The results of one evaluator.

    Attributes:
        hits: results found so far.
    """

    def __init__(self, directory: Path, evaluator: Evaluator) -> None:
        self._salt = evaluator_key(evaluator)
        self.path = directory / f"{file_name(full_name(evaluator))}.jsonl"
        self.hits = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise StudyError(
                f"cannot keep results in {directory}: {error.strerror}", hint="see --cache and --no-cache"
            ) from error
        self._where: dict[bytes, tuple[int, int]] = {}
        self._read = 0
        self._index()

    def _index(self) -> None:
        """Learn of lines that were added, by any process."""
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size - self._read, self._read) if size > self._read else b""
        position = 0
        while (newline := data.find(b"\n", position)) >= 0:
            if data.startswith(_START, position):
                key = data[position + len(_START) : position + len(_START) + _KEY_BYTES]
                self._where[key] = (self._read + position, newline - position)
            position = newline + 1
        self._read += position

    def get(self, candidate: Candidate) -> dict[str, Any] | None:
        """Metrics of a design that was evaluated before."""
        key = self._key(candidate)
        found = self._where.get(key)
        values = None if found is None else decode_line(os.pread(self._fd, found[1], found[0]))
        if values is None or values["id"].encode() != key:
            return None
        self.hits += 1
        metrics: dict[str, Any] = values["metrics"]
        return metrics

    def put(self, candidate: Candidate, metrics: dict[str, Any], seconds: float) -> None:
        """Keep a result, unless evaluating again is as fast."""
        key = self._key(candidate)
        if seconds < SECONDS or key in self._where:
            return
        line = encode_line({"id": key.decode(), "metrics": metrics})
        # A single append does not mix with lines of other processes. If a killed process left a torn line, a newline
        # ends it first.
        try:
            size = os.fstat(self._fd).st_size
            ended = size == 0 or os.pread(self._fd, 1, size - 1) == b"\n"
            os.write(self._fd, line if ended else b"\n" + line)
        except OSError:
            return  # e.g. a full disk, which the run's log reports; a lost result costs only time
        self._index()

    def _key(self, candidate: Candidate) -> bytes:
        text = json.dumps([self._salt, candidate.design.program.digest, candidate.key])
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_BYTES].encode()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
