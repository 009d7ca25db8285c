"""The process that compiles task bodies: a fork of the process that asks, or, where that has threads, a new one.

Requests and replies are msgpack behind 8 bytes of their length. It ends with its parent.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

import msgspec

from allo_dse.common.errors import SimulationError
from allo_dse.common.processes import limit_memory
from allo_dse.common.records import Frozen

from .signature import Body


class Request(Frozen):
    """The arguments of `lowering.bodies.compile_bodies`."""

    bodies: tuple[Body, ...]
    record: bool
    optimize: bool
    layout: str


class Reply(Frozen):
    """The answer to a request, or, before it, the bodies that are worked on.

    Attributes:
        symbols: bodies that are being lowered, or that machine code is made of.
        made: compiled bodies, as msgpack.
        message, hint: the error in a request.
    """

    symbols: tuple[str, ...] = ()
    made: bytes = b""
    message: str = ""
    hint: str = ""


def main() -> None:
    """Serve in a process that was started with the limits as arguments."""
    serve(*map(float, sys.argv[1:3]))


def serve_as_fork(seconds: float, gib: float) -> NoReturn:
    """Serve in a fork, which closes its parent's files, frees none of its objects, runs none of its signal handlers,
    tracers and profilers, and ends here."""
    status = 1
    try:
        sys.settrace(None)
        sys.setprofile(None)
        signal.set_wakeup_fd(-1)
        for file in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                if file > 2:
                    os.close(file)
        gc.freeze()
        gc.enable()
        serve(seconds, gib)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def serve(seconds: float, gib: float) -> None:
    """Serve the parent until it closes the pipe.

    Args:
        seconds, gib: processor time and memory that a request may take.
    """
    # The parent handles signals to the process group; it closes the pipe when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # of a fork's parent
            signal.signal(number, signal.SIG_DFL)
    # A parent may block or ignore the signal that ends this process at its limit.
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    requests, replies = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from allo_dse.common.mlir.bindings import PACKAGE

    # Importing the classes of their operations, which nothing here uses, takes longer than compiling a small body.
    for dialect in ("linalg", "llvm"):
        sys.modules.setdefault(name := f"{PACKAGE}.dialects.{dialect}", ModuleType(name))
    from .bodies import compile_bodies

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(int(gib * 2**30))

    def send(reply: Reply) -> None:
        text = msgspec.msgpack.encode(reply)
        replies.write(len(text).to_bytes(8, "little") + text)
        replies.flush()

    while head := requests.read(8):
        request = msgspec.msgpack.decode(requests.read(int.from_bytes(head, "little")), type=Request)
        usage, (_, most) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)
        soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
        try:
            made = compile_bodies(**msgspec.structs.asdict(request), started=lambda names: send(Reply(names)))
        except SimulationError as error:
            send(Reply(message=error.message, hint=error.hint))
        else:
            send(Reply(made=msgspec.msgpack.encode(made)))
