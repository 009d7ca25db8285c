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
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).parent.parent.parent
_SECONDS = 300
_SERVER = """
import gc, importlib, json, os, sys

requests, answers = (os.fdopen(int(fd), mode) for fd, mode in zip(sys.argv[1:3], "rw"))
for pipe in (requests, answers):
    os.set_inheritable(pipe.fileno(), False)
for module in sys.argv[3:]:
    importlib.import_module(module)
gc.freeze()
while line := requests.readline():
    if not (command := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]), file=answers, flush=True)
else:
    sys.exit()
asked = json.loads(line)
os.chdir(asked["cwd"])
os.environ.clear()
os.environ.update(asked["environment"])
for fd, path in enumerate(asked["outputs"], 1):
    os.dup2(os.open(path, os.O_WRONLY), fd)
sys.argv = ["allo-tune", *asked["arguments"]]

from allo_dse.cli import main

main()
"""
_IMPORTED = (
    "allo_dse.cli.commands.tune",
    "allo_dse.drawing.placements",
    "allo_dse.drawing.summary",
    "allo_dse.eval.hardware.command",
    "allo_dse.eval.npu.evaluator",
    "allo_dse.eval.verify",
    "allo_dse.mapper.limits.npu_limits",
    "allo_dse.mapper.place.by_models",
    "allo_dse.mapper.place.solve",
    "allo_dse.mapper.target.allo_program",
    "allo_dse.simulator.codegen.lowering.bodies",
    "allo_dse.space.sampler.evolution",
    "allo_dse.tune.results.best",
    "allo_dse.tune.run.session",
    "allo_dse.tune.show.reporters",
    "allo_dse.tune.study_file",
    "optuna",
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
        self._ask, self._answers = os.fdopen(ask, "w"), os.fdopen(answer)

    def run(self, **question: object) -> int:
        """The exit status of a command."""
        print(json.dumps(question), file=self._ask, flush=True)
        if not select.select([self._answers], [], [], _SECONDS)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
            _server.cache_clear()
            raise TimeoutError(f"no end after {_SECONDS} s: {question}")
        return int(self._answers.readline())


@cache
def _server() -> _Server:
    return _Server()


def allo_tune(
    *arguments: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """What a command prints and how it ends; `environment` beside that of this process."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("out", "err")]
        for path in outputs:
            path.touch()
        code = _server().run(
            arguments=words, cwd=str(cwd), environment={**os.environ, **(environment or {})},
            outputs=[str(path) for path in outputs],
        )  # fmt: skip
        return CompletedProcess(words, code, *(path.read_text(encoding="utf-8") for path in outputs))
