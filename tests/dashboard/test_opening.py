"""The command opens runs and serves them, or says why it cannot."""

import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import bind, listen
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.store.log import encode_line

from ..support.listening import descendants, listening
from .conftest import wait_text
from .synthetic import design, write_run
from .test_browser import DRAWN


def break_log(path: Path) -> None:
    with (path / "log.jsonl").open("ab") as log:
        log.write(encode_line({**design(999).to_dict(), "metrics": "none"}))


def test_what_is_wrong_with_a_log_that_can_be_read_is_said_in_the_status(
    tmp_path: Path, visit: Any, serve: Any
) -> None:
    path = write_run(tmp_path / "damaged", 40)
    log = path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b"design", b"desing")
    log.write_bytes(b"".join(lines)[:-9])
    page = visit(serve(path)[0]).open()
    wait_text(page, "#status", "damaged lines are skipped: 1")
    wait_text(page, "#status", "the last line is cut short")
    break_log(path)  # the end of the line that was cut short: one damaged line
    break_log(path)
    wait_text(page, "#status", "makes no sense here")
    page.wait_for_function(DRAWN)


def test_a_port_in_use_and_an_address_of_another_computer_are_said_so() -> None:
    with bind("127.0.0.1", 0) as taken:
        with pytest.raises(StudyError, match=r"port \d+ of 127.0.0.1 is in use") as caught:
            bind("127.0.0.1", taken.getsockname()[1])
        assert "--port 0" in caught.value.hint
    with pytest.raises(StudyError, match="not an address of this computer"):
        bind("192.0.2.1", 0)
    with pytest.raises(StudyError, match="cannot listen on"):
        bind("127.0.0.1", 70_000)


@contextmanager
def command(*arguments: Path | str) -> Iterator[Any]:
    """A dashboard as a process."""
    # Whoever runs the tests in the background has made processes ignore Ctrl-C.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from allo_dse.cli import main; main()"
    line = [sys.executable, "-c", code, "dashboard", *map(str, arguments), "--no-browser"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.wait(timeout=300)
        finally:
            process.kill()


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 30)
    with command(path, "--port", "0") as process:
        said = process.stderr.readline()
        assert said.startswith("run: 30 designs at http://")
        url = said.split(" at ")[1].split(" ")[0]
        assert b"allo-dse" in urllib.request.urlopen(url).read()
        if sys.platform == "linux":
            assert listening(descendants(process.pid)) == {"127.0.0.1"}
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    break_log(path)
    with command(path, "--port", "0") as process:
        said = process.stderr.read()
        assert "makes no sense here" in said
        assert "Traceback" not in said
    assert process.returncode == 2


def test_an_interrupt_leaves_no_request_half_accepted(tmp_path: Path) -> None:
    answers: list[int] = []
    board = Board.open([write_run(tmp_path / "run", 3)])
    server = listen(make_app(Context(board, Programs(board, None))), port=0)
    accept = server.process_request

    def interrupted(request: Any, client_address: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        accept(request, client_address)

    server.process_request = interrupted  # type: ignore[method-assign]
    url = f"http://127.0.0.1:{server.port}/_dash-dependencies"
    asking = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(url, timeout=300).status))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with server, server.interrupted_between_requests():
            asking.start()
            server.serve_forever()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    asking.join()
    assert answers == [200]


def test_the_command_refuses_at_once_what_it_cannot_serve(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases = [
            ((tmp_path,), "is not a run directory: it has no run.json"),
            ((tmp_path / "missing",), "is not a run directory"),
            ((path, "--port", taken.getsockname()[1]), "is in use, perhaps by another dashboard"),
        ]
        for arguments, words in cases:
            with command(*arguments) as process:
                _, said = process.communicate(timeout=300)
            assert words in said
            assert process.returncode == 2
