"""How much of the package a trial, a resumed run and a gesture go through: files and functions entered, hops.

    python -m benchmarks.path_length          # a trial, a resumed run and a gesture on the page, each in a new process

Functions count that are called, module bodies not. Lambdas, generator expressions and, before Python 3.12,
comprehensions run as functions, too; they are counted apart as expressions. Hops are functions of the package on the
stack from the command line to the evaluator.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT / "allo_dse")
STUDY = str(ROOT / "studies" / "gemm_npu.py")
GESTURE = {"do": "box", "x": "latency_us", "y": "pe_count", "range": {"x": [0, 1e9], "y": [0, 100]}}


class Entered:
    """The functions of the package that are entered, and the deepest way to an evaluator."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.hops = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
            return
        self.functions.add(code)
        if code.co_qualname == "NpuSimulator.evaluate" and not self.hops:
            self.hops = _depth(frame.f_back)

    def of(self, action: Callable[[], object]) -> None:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            action()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.setprofile(None)

    def __str__(self) -> str:
        files = {code.co_filename for code in self.functions}
        inner = sum(code.co_name.startswith("<") for code in self.functions)
        hops = f", {self.hops} hops to the evaluator" if self.hops else ""
        return f"{len(files)} files, {len(self.functions) - inner:,} functions and {inner:,} expressions{hops}"


def _depth(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(PACKAGE)
        frame = frame.f_back
    return count


def tuned(run_dir: str, trials: int) -> None:
    """A run, or where there is one its resumption, as from the command line."""
    from allo_dse.cli.main import main

    sys.argv = ["allo-tune", STUDY, "--trials", str(trials), "--run-dir", run_dir, "--seed", "0", "--quiet"]
    entered = Entered()
    with contextlib.redirect_stdout(io.StringIO()):
        entered.of(main)
    print(entered)


def drawn(run_dir: str) -> None:
    """A box around designs on the page."""
    from allo_dse.dashboard.app.context import Context
    from allo_dse.dashboard.app.factory import make_app
    from allo_dse.dashboard.app.interactions import first_answer
    from allo_dse.dashboard.data.runs import Board
    from allo_dse.dashboard.programs import Programs

    board = Board.open([Path(run_dir)])
    context = Context(board, Programs(board, None))
    client = make_app(context).server.test_client()
    last = first_answer(context, "light")
    question = json.dumps({"state": last["state"], "drawn": last["drawn"], "gestures": [GESTURE]})
    entered = Entered()
    entered.of(lambda: client.post("/gestures", data=question, content_type="application/json"))
    print(entered)


def main() -> None:
    if len(sys.argv) > 1:
        what, run_dir = sys.argv[1:3]
        drawn(run_dir) if what == "gesture" else tuned(run_dir, int(what))
        return
    with tempfile.TemporaryDirectory() as folder:
        run_dir = str(Path(folder) / "run")
        for name, what in (("one trial", "1"), ("resumed for another", "2"), ("a gesture on the page", "gesture")):
            print(f"{name}: ", end="", flush=True)
            subprocess.run([sys.executable, "-m", "benchmarks.path_length", what, run_dir], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
