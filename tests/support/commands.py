"""`allo-tune` in a process of its own that begins with the package imported, which takes longer than most commands of
tests: a server has imported it, and a copy of the server becomes the command.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).parent.parent.parent
_SECONDS = 300
_SERVER = """
import gc, importlib, json, os, resource, sys

from allo_dse.space.sampler.pareto import Individual, Parents, Results

requests, answers = (os.fdopen(int(fd), mode) for fd, mode in zip(sys.argv[1:3], "rw"))
for pipe in (requests, answers):
    os.set_inheritable(pipe.fileno(), False)
for module in sys.argv[3:]:
    importlib.import_module(module)
# Numba prepares for half a second before the first of its functions that are kept on disk can be called.
Parents(1).renew(Results.of([Individual(0, {}, (0.0,))]))
gc.freeze()
while line := requests.readline():
    if not (command := os.fork()):
        break
    print(command, file=answers, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]), file=answers, flush=True)
else:
    sys.exit()
asked = json.loads(line)
os.chdir(asked["cwd"])
os.environ.clear()
os.environ.update(asked["environment"])
if asked["file_bytes"] is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_bytes"], asked["file_bytes"]))
for fd, path in enumerate(asked["outputs"], 1):
    os.dup2(os.open(path, os.O_WRONLY), fd)
sys.argv = ["allo-tune", *asked["arguments"]]

from allo_dse.cli import main

main()
"""
_IMPORTED = (
    "allo_dse.cli.commands.tune",
    "allo_dse.backends.npu.drawing",
    "allo_dse.drawing.summary",
    "allo_dse.eval.command",
    "allo_dse.backends.npu.evaluator",
    "allo_dse.eval.verify",
    "allo_dse.backends.npu.limits",
    "allo_dse.backends.npu.place.cp_sat_placement",
    "allo_dse.backends.npu.place.solve",
    "allo_dse.backends.npu.allo.program_rules",
    "allo_dse.simulator.codegen.bodies",
    "allo_dse.space.sampler.optuna_sampler",
    "allo_dse.tune.results.best",
    "allo_dse.tune.run.session",
    "allo_dse.tune.show.reporters",
    "allo_dse.tune.study",
    "tests.tune.fakes",
)


class _Server:
    def __init__(self) -> None:
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        command = [sys.executable, "-c", _SERVER, str(asked), str(answered), *_IMPORTED]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, pass_fds=(asked, answered), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(asked)
        os.close(answered)
        self._ask, self._answers = os.fdopen(ask, "w"), os.fdopen(answer, "rb", buffering=0)

    def start(self, **question: object) -> int:
        """The process of a command. Its exit status is to be asked for before the next one is started."""
        print(json.dumps(question), file=self._ask, flush=True)
        return self._answer()

    def exit_status(self) -> int:
        """How the command ends."""
        return self._answer()

    def _answer(self) -> int:
        if not select.select([self._answers], [], [], _SECONDS)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
            _server.cache_clear()
            raise TimeoutError(f"no answer within {_SECONDS} s")
        return int(self._answers.readline())


@cache
def _server() -> _Server:
    return _Server()


class Started:
    """A command that runs, in the process `pid`."""

    def __init__(self, server: _Server, pid: int, words: list[str], outputs: list[Path]) -> None:
        self.pid = pid
        self.has_ended = False
        self._server, self._words, self._outputs = server, words, outputs

    def end(self) -> CompletedProcess[str]:
        """What it has printed and how it ends, when it has ended."""
        self.has_ended = True
        code = self._server.exit_status()
        return CompletedProcess(self._words, code, *(path.read_text(encoding="utf-8") for path in self._outputs))


@contextmanager
def started(
    *arguments: object,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    file_bytes: int | None = None,
) -> Iterator[Started]:
    """A command while it runs, the only one; it is killed unless it has ended by itself.

    Args:
        environment: beside that of this process.
        file_bytes: that files which it writes can have.
    """
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("out", "err")]
        for path in outputs:
            path.touch()
        server = _server()
        pid = server.start(
            arguments=words, cwd=str(cwd), environment={**os.environ, **(environment or {})},
            outputs=[str(path) for path in outputs], file_bytes=file_bytes,
        )  # fmt: skip
        command = Started(server, pid, words, outputs)
        try:
            yield command
        finally:
            if not command.has_ended:
                os.kill(pid, signal.SIGKILL)
                command.end()


def allo_tune(
    *arguments: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """What a command prints and how it ends; `environment` beside that of this process."""
    with started(*arguments, cwd=cwd, environment=environment) as command:
        return command.end()
