"""The process that compiles task bodies: `main()`, with the seconds and the GiB that a request may take as arguments.

Requests and replies are msgpack behind 8 bytes of their length. It ends with its parent.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys

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


class Started(Frozen, tag=True):
    """Bodies are being lowered, or machine code is made of them."""

    symbols: tuple[str, ...]


class Made(Frozen, tag=True):
    """Compiled bodies, as msgpack."""

    made: bytes


class Refused(Frozen, tag=True):
    """The error in a request."""

    message: str
    hint: str


Reply = Started | Made | Refused


def main() -> None:
    """Serve the parent until it closes the pipe."""
    # The parent handles signals to the process group; it closes the pipe when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    seconds, gib = map(float, sys.argv[1:3])
    from .bodies import compile_bodies

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(int(gib * 2**30))

    def send(reply: Reply) -> None:
        text = msgspec.msgpack.encode(reply)
        replies.write(len(text).to_bytes(8, "little") + text)
        replies.flush()

    while head := requests.read(8):
        request = msgspec.msgpack.decode(requests.read(int.from_bytes(head, "little")), type=Request)
        _limit_time(seconds)
        try:
            made = compile_bodies(**msgspec.structs.asdict(request), started=lambda names: send(Started(names)))
        except SimulationError as error:
            send(Refused(error.message, error.hint))
        else:
            send(Made(msgspec.msgpack.encode(made)))


def _limit_time(seconds: float) -> None:
    """End this process after `seconds` more of processor time."""
    usage, (_, most) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
