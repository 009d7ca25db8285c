"""Compilation of task bodies in a process of its own, under limits: native code in this process could not be stopped.

The process starts with the first request and serves later ones. A request that exceeds a limit or crashes the compiler
ends it, and the next request starts another. The limit is on processor time, not on the clock, so that a loaded machine
compiles the same programs.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import msgspec
import psutil

from allo_dse.common.errors import CompileLimit, SimulationError
from allo_dse.common.mlir import jit
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.jit import MachineCode, processor
from allo_dse.common.processes import python_running

from .compile_child import Reply, Request, serve_as_fork
from .signature import Body, CompiledBodies

SECONDS_SETTING, GIB_SETTING = "ALLO_DSE_COMPILE_SECONDS", "ALLO_DSE_COMPILE_GIB"
_DEFAULTS = {SECONDS_SETTING: 120.0, GIB_SETTING: 4.0}
_CLOCK_RATIO = 50
"""The clock's limit, as a multiple of that of processor time: for a process that waits for what never comes."""
_MOST_BYTES = 1 << 32
"""Largest size of a reply."""
_ENDS_SECONDS = 20.0
"""Time for a process to end that has closed its pipe."""


def compiled(request: Request) -> bytes:
    """Compile a request in the server process.

    Raises:
        CompileLimit: if it takes too much time or memory, or the compiler crashes.
        SimulationError: if the compiler rejects the request.
    """
    global _server
    key = msgspec.msgpack.encode(request)
    with _lock:
        if key in _refused:
            raise CompileLimit(*_refused[key])
        limits = _limits()
        if _server is None or _server.limits != limits or _server.process.poll() is not None:
            end_server()
            _server = _Server(limits)
        try:
            return _server.made(key, tuple(body.symbol for body in request.bodies))
        except CompileLimit as failure:
            # A search requests the same bodies in each of its designs. Under other limits they are tried again.
            _refused[key] = failure.what, failure.hint, failure.symbols
            end_server()
            raise
        except SimulationError:
            raise
        except BaseException:  # an interrupt: the answer, which no one waits for, would be taken for the next one's
            end_server()
            raise


def end_server() -> None:
    """End the process, if there is one."""
    global _server
    ended, _server = _server, None
    if ended is not None:
        ended.end()


_lock = threading.RLock()
_server: _Server | None = None
_refused: dict[bytes, tuple[str, str, tuple[str, ...]]] = {}
atexit.register(end_server)


def _forget() -> None:
    """Leave the process to the parent of this one."""
    global _lock, _server
    _lock, _server = threading.RLock(), None


os.register_at_fork(after_in_child=_forget)


def _limits() -> tuple[float, float]:
    """The limits in seconds and GiB; with new limits, earlier refusals no longer count."""
    found = []
    for name, default in _DEFAULTS.items():
        text = os.environ.get(name) or str(default)
        try:
            found.append(float(text))
        except ValueError:
            found.append(math.nan)
        if not 0 < found[-1] < math.inf:
            raise SimulationError(f"{name} is {text!r}", hint=f"a number above 0, such as {default:g}")
    return found[0], found[1]


class _Server:
    def __init__(self, limits: tuple[float, float]) -> None:
        self.limits = limits
        _refused.clear()
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        command = python_running(f"{__package__}.compile_child", *map(str, limits))
        # A fork of a process with Python threads may wait for locks that they hold. It keeps a copy of each page that
        # its parent writes: at most an eighth more memory than compiling may take.
        memory = psutil.Process().memory_info()
        is_small = memory.rss - memory.shared < limits[1] * 2**30 / 8
        fork = partial(serve_as_fork, *limits) if len(sys._current_frames()) == 1 and is_small else None
        pipe = subprocess.PIPE
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # native threads hold none
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._messages, bufsize=0, preexec_fn=fork
            )

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self._messages):
            assert file is not None
            file.close()

    def made(self, request: bytes, symbols: tuple[str, ...]) -> bytes:
        """The answer to a request for some bodies."""
        assert self.process.stdin is not None
        until = time.monotonic() + _CLOCK_RATIO * self.limits[0]
        with suppress(BrokenPipeError):  # then there is no answer, either
            view = memoryview(len(request).to_bytes(8, "little") + request)
            while view:
                view = view[self.process.stdin.write(view) :]
        while reply := self._reply(until):
            if reply.made:
                return reply.made
            if reply.message:
                raise SimulationError(reply.message, hint=reply.hint)
            symbols = reply.symbols
        raise self._ended(symbols, until)

    def _reply(self, until: float) -> Reply | None:
        """Read a reply; None if there is no valid one."""
        size = int.from_bytes(self._read(8, until), "little")
        text = self._read(size, until) if size <= _MOST_BYTES else b""
        try:
            return msgspec.msgpack.decode(text, type=Reply) if text else None
        except msgspec.MsgspecError:
            return None

    def _read(self, count: int, until: float) -> bytes:
        """Read a number of bytes; none if the process has ended, or the clock's limit is over."""
        assert self.process.stdout is not None
        found, waiting = b"", select.poll()
        waiting.register(self.process.stdout, select.POLLIN)
        while len(found) < count:
            ready = waiting.poll(max(0.0, until - time.monotonic()) * 1000)
            piece = os.read(self.process.stdout.fileno(), count - len(found)) if ready else b""
            if not piece:
                return b""
            found += piece
        return found

    def _ended(self, symbols: tuple[str, ...], until: float) -> CompileLimit:
        """Why there is no answer."""
        seconds, gib = self.limits
        is_late = time.monotonic() >= until
        if not is_late:  # it ends by itself, or has sent what is no reply
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENDS_SECONDS)
        code = self.process.poll()
        if is_late or code == -signal.SIGXCPU:
            what, setting = f"takes more than {seconds:g} s of processor time", SECONDS_SETTING
        else:
            self._messages.seek(0)
            lines = self._messages.read().decode(errors="replace").split("\n")
            said = next((line.strip() for line in lines if re.search("error|alloc|memory", line, re.I)), "")
            by = "no valid reply" if code is None else signal.Signals(-code).name if code < 0 else f"status {code}"
            what = f"crashes the compiler, which may take {gib:g} GiB of memory ({said or by})"
            setting = GIB_SETTING
        hint = (
            f"a smaller kernel, or fewer sizes of it, compile sooner; the environment variable {setting} sets the limit"
        )
        return CompileLimit(f"compiling {{}} {what}", hint, symbols)


# Task bodies and the run time compiled, or read from disk where an earlier process has compiled the same.


_KIND = "code"


def compiled_bodies(bodies: Sequence[Body], record: bool = False, *, optimize: bool = True) -> CompiledBodies:
    """Compile bodies as `bodies.compile_bodies` does, with the same errors, under the limits of `compile_server`."""
    if not bodies:
        return CompiledBodies(b"", ())
    request = Request(tuple(bodies), record, optimize, jit.data_layout())
    made = _kept((_compiler(), record, optimize, bodies), lambda: compiled(request))
    return msgspec.msgpack.decode(made, type=CompiledBodies)


@cache
def run_time(record: bool) -> MachineCode:
    """The scheduler and the table process, once in each process."""

    def made() -> bytes:
        from .bodies import compile_runtime

        return compile_runtime(record)

    return MachineCode(_kept((_compiler(), record), made))


def _kept(key: object, made: Callable[[], bytes]) -> bytes:
    """Return the stored bytes of an equal key, or make and store them."""
    content = msgspec.msgpack.encode(key)
    found = jit.known(_KIND, content)
    if found is None:
        found = made()
        jit.keep(_KIND, content, found)
    return found


@cache
def _compiler() -> tuple[object, ...]:
    """Return the inputs of machine code besides the bodies: code generation as it is now, MLIR, the processor.

    The same in every copy of the package: of its files the texts count and not the times.
    """
    package = Path(__file__).parent.parent.parent
    sources = sorted([*package.glob("common/mlir/*.py"), *package.glob("simulator/**/*.py")])
    texts = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return _mlir_version(), processor(), texts


def _mlir_version() -> str:
    """Return size and time of MLIR's library; asking for the package's version imports a parser of e-mail."""
    (found,) = (Path(ir.__file__).parent / "_mlir_libs").glob("_mlir.*so")
    return f"{found.stat().st_size} {found.stat().st_mtime_ns}"
