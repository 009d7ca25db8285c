"""Evaluators that do what evaluators do on a bad day. Each misbehaves for about one design in `one_in`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.study import Study

from .fakes import FakeEvaluator, fake_study

# In the environment of every process that this run of the tests starts: others may run on the same machine.
MARK = "ALLO_DSE_TEST_RUN"
os.environ.setdefault(MARK, uuid.uuid4().hex)
NOTES = "ALLO_DSE_TEST_NOTES"
HANGS = "ALLO_DSE_TEST_HANGS"
"""Names a file that exists from when an evaluator hangs until `Hurried` has noticed."""


class Hurried:
    """In place of `time` a clock for deadlines, which only what hangs can miss, however busy the machine is.

    It goes a hundredth as fast as others, and an hour ahead when an evaluator hangs.
    """

    perf_counter = staticmethod(time.perf_counter)

    def __init__(self, hangs: Path) -> None:
        self._hangs, self._ahead = hangs, 0.0

    def monotonic(self) -> float:
        now = self._ahead + time.monotonic() / 100
        if self._hangs.exists():  # who begins to wait only now has not waited for an hour
            self._hangs.unlink()
            self._ahead += 3600.0
        return now


def hang() -> None:
    """Says so, and does."""
    if HANGS in os.environ:
        Path(os.environ[HANGS]).touch()
    time.sleep(300)


class Hazard(FakeEvaluator):
    """Isolated; `trip` is called for some designs before they are evaluated."""

    isolate = True
    one_in = 5

    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % self.one_in == 0:
            print(f"tripping over {design.key}", flush=True)
            Path(tempfile.mkdtemp(), "half a project").touch()
            self.trip(design)
        return super().evaluate(design)

    def trip(self, design: Any) -> None:
        raise NotImplementedError


class SaysWhatPythonIsTold(FakeEvaluator):
    """Fails with the variables that a command has of Python, which it starts."""

    isolate = True

    def evaluate(self, design: Any) -> Metrics:
        said = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True).stdout.split("\0")
        raise RuntimeError(json.dumps(dict(one.split("=", 1) for one in said if one.startswith("PYTHON"))))


def study(evaluator: Any) -> Study:
    """With few designs. A child makes it here, in a module that imports no pytest."""
    made = fake_study(evaluator=evaluator, params={"size": 512, "Pm": 8, "Pn": 8, "Pk": 8})
    made.reload = partial(study, evaluator)
    return made


class Segfaults(Hazard):
    def trip(self, design: Any) -> None:
        ctypes.string_at(0)


class Killed(Hazard):
    def trip(self, design: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Hazard):
    def trip(self, design: Any) -> None:
        os._exit(3)


class LeavesPolitely(Hazard):
    def trip(self, design: Any) -> None:
        sys.exit("no licence")


class HangsUnannounced(Hazard):
    def trip(self, design: Any) -> None:
        hang()


class HangsAtHome(HangsUnannounced):
    """Not isolated of its own accord."""

    isolate = False
    name = "hanging"


class Hangs(Hazard):
    """Hangs with children of its own, one of which has left the process group and lost its parent."""

    deadline_s = 1.0

    def trip(self, design: Any) -> None:
        subprocess.Popen(["sleep", "300"])
        subprocess.Popen(["setsid", "sh", "-c", "sleep 300 & exit"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang()


class Hoards(Hazard):
    """Takes memory itself."""

    memory_bytes = 200 << 20

    def trip(self, design: Any) -> None:
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20) * 16))


class HoardsInAChild(Hazard):
    """Takes memory in processes it starts, none of which is over the limit alone."""

    memory_bytes = 400 << 20
    code = "x = bytearray(b'x' * (150 << 20)); import time; time.sleep(300)"

    def trip(self, design: Any) -> None:
        for _ in range(4):
            subprocess.Popen([sys.executable, "-S", "-c", self.code])
        time.sleep(300)


class Babbles(Hazard):
    """Prints garbage wherever it can, and goes on to give an answer."""

    def trip(self, design: Any) -> None:
        for descriptor in (1, 2):
            os.write(descriptor, os.urandom(1 << 16))


class AnswersNonsense(Hazard):
    def evaluate(self, design: Any) -> Any:
        number = int(design.key, 16) % 4
        if number == 0:
            return None
        if number == 1:
            return {"latency_us": object()}
        if number == 2:
            return {"latency_us": "fast", "pe_count": 1, "local_memory_bytes": 1}
        return FakeEvaluator().evaluate(design)


class AnswersNonsenseAtHome(AnswersNonsense):
    isolate = False


class StartsOnlyAtHome(Hazard):
    def __init__(self) -> None:
        if os.environ.get("ALLO_DSE_CELL"):
            raise RuntimeError("tool not found")


class WritesToTheReplyPipe(Hazard):
    def trip(self, design: Any) -> None:
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.write(int(name), b"garbage\n")


class Various(Hazard):
    """Another one of `kinds` for each unlucky design in turn, counted in the file that the variable `NOTES` names."""

    kinds = (Segfaults, Killed, Exits, LeavesPolitely, WritesToTheReplyPipe)

    def trip(self, design: Any) -> None:
        with open(os.environ[NOTES], "a") as notes:
            notes.write(".")
            number = notes.tell() - 1
        self.kinds[number]().trip(design)


class Floods(Hazard):
    """Writes without end wherever it can."""

    def trip(self, design: Any) -> None:
        open_ones = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
        while True:
            for one in open_ones:
                with contextlib.suppress(OSError):
                    os.write(one, b"x" * (1 << 16))


class Multiplies(Hazard):
    """Starts process after process."""

    def trip(self, design: Any) -> None:
        while True:
            subprocess.Popen(["sleep", "300"])
            time.sleep(0.01)


def own_processes(command: bytes, mark: bytes = b"") -> list[int]:
    """Processes of this run of the tests, by words of their command line and of their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if command in line and f"{MARK}={os.environ[MARK]}".encode() in environment and mark in environment:
                found.append(int(entry.name))
    return found


def sleepers() -> list[int]:
    """Processes that a hanging evaluator has started and that are still there."""
    return own_processes(b"sleep\x00300\x00", b"ALLO_DSE_CELL=")


def wait_until(condition: Any, seconds: Any = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)  # a condition may read what /proc has of every process
