"""The page is up before the runs have been read, says how far that is, and then shows all of them."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.app import factory
from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import bind, listen, server_on, url_of
from allo_dse.dashboard.data.runs import Board, Opening
from allo_dse.dashboard.data.table import RunTable
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.store.log import encode_line

from ..support.listening import descendants, listening
from .conftest import wait_text
from .data.test_reading import content
from .synthetic import append, design, write_run
from .test_browser import DRAWN

SMALL = 20_000
"""Bytes that are read at once; some 40 designs."""


class Gated(Board):
    """A board that reads only as often as it has been allowed to."""

    def __init__(self, *paths: Path) -> None:
        super().__init__([RunTable(path, chunk_bytes=SMALL) for path in paths])
        self.allowed = threading.Semaphore(0)

    def read_on(self) -> Any:
        self.allowed.acquire()
        return super().read_on()

    def open_wide(self) -> None:
        self.allowed.release(1_000)


@contextmanager
def opened(board: Any) -> Iterator[Any]:
    """The address of a dashboard that reads its runs while it is up."""
    opening = Opening(board)
    with bind("127.0.0.1", 0) as listening:
        app = make_app(Context(board, Programs(board, None), opening=opening))
        server = server_on(listening, app, board, opening)
        url = url_of(listening).replace("localhost", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    opening.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """Serves boards that are still to be read until the end of the test, when the tabs are closed already."""
    with ExitStack() as stack:
        yield lambda board: stack.enter_context(opened(board))


def break_log(path: Path) -> None:
    with (path / "log.jsonl").open("ab") as log:
        log.write(encode_line({**design(999).to_dict(), "metrics": "none"}))


def test_the_page_says_how_much_has_been_read_and_then_shows_it_without_being_loaded_again(
    tmp_path: Path, visit: Any, serve: Any
) -> None:
    first, second = write_run(tmp_path / "one", 300), write_run(tmp_path / "two", 80)
    board = Gated(first, second)
    page = visit(serve(board)).open()
    wait_text(page, "#opening", "reading: 0 %, 0 designs")
    page.evaluate("window.stayed = true")
    append(second, range(80, 90))  # while the first is being read
    board.allowed.release(2)
    page.wait_for_function(
        "() => { const [, share, n] = document.querySelector('#opening').innerText.match(/: (\\d+) %, (\\d+) des/);"
        "return 0 < share && share < 100 && 0 < n && n < 300; }"
    )
    wait_text(page, "#opening h1", "one, two")
    assert page.locator("#root").count() == 0
    board.open_wide()
    page.wait_for_function(DRAWN)
    wait_text(page, "#status", "390 designs")
    page.locator("#opening").wait_for(state="detached")
    assert page.evaluate("window.stayed")
    wait_text(page, "#table-note", "390 of 390 designs")


def test_a_log_that_makes_no_sense_is_said_on_the_page(tmp_path: Path, visit: Any, serve: Any) -> None:
    path = write_run(tmp_path / "broken", 40)
    break_log(path)
    page = visit(serve(Board.of([path]))).open()
    wait_text(page, "[role=alert]", "log.jsonl has an entry that makes no sense here")
    wait_text(page, "[role=alert]", "--fresh begins anew")


def test_what_is_wrong_with_a_log_that_can_be_read_is_said_in_the_status(
    tmp_path: Path, visit: Any, serve: Any
) -> None:
    path = write_run(tmp_path / "damaged", 40)
    log = path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b"design", b"desing")
    log.write_bytes(b"".join(lines)[:-9])
    page = visit(serve(Board.of([path]))).open()
    wait_text(page, "#status", "damaged lines are skipped: 1")
    wait_text(page, "#status", "the last line is cut short")
    break_log(path)  # the end of the line that was cut short: one damaged line
    break_log(path)
    wait_text(page, "#status", "makes no sense here")
    page.wait_for_function(DRAWN)


@settings(max_examples=25, deadline=None)
@given(st.integers(200, 30_000), st.integers(0, 60), st.data())
def test_reading_beside_a_server_is_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, chunk_bytes: Any, designs: Any, data: DataObject
) -> None:
    """Also of a log that grows meanwhile: what `refresh` finds after that is the rest."""
    path = write_run(tmp_path_factory.mktemp("run"), designs)
    board = Board([RunTable(path, chunk_bytes=chunk_bytes)])
    opening = Opening(board)
    opening.start()
    more = data.draw(st.integers(0, 30))
    append(path, range(designs, designs + more))
    opening.wait()
    assert opening.share == 1
    assert opening.error is None
    assert len(board.runs[0]) >= designs
    board.refresh()
    assert content(board.runs[0]) == content(Board.open([path]).runs[0])


def test_questions_about_designs_wait_and_scripts_do_not(tmp_path: Path) -> None:
    board = Gated(write_run(tmp_path / "run", 30))
    with opened(board) as url, patch.object(factory, "page", wraps=factory.page) as made:
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(json.loads(urllib.request.urlopen(f"{url}/_dash-layout").read()))
        )
        asking.start()
        for path in ("/", "/_dash-dependencies", "/opening"):
            assert urllib.request.urlopen(url + path).status == 200
        assert not answers
        made.assert_not_called()
        board.open_wide()
        asking.join()
        assert "30 designs" in json.dumps(answers)


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
    code += "from allo_dse.dashboard.cli import main; main()"
    line = [sys.executable, "-c", code, "dashboard", *map(str, arguments), "--no-browser"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.wait(timeout=60)
        finally:
            process.kill()


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 30)
    with command(path, "--port", "0") as process:
        url = process.stderr.readline().split("run: ")[1].split(" ")[0]
        assert b"allo-dse" in urllib.request.urlopen(url).read()
        if sys.platform == "linux":
            assert listening(descendants(process.pid)) == {"127.0.0.1"}
        assert process.stderr.readline() == "30 designs\n"
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    break_log(path)
    with command(path, "--port", "0") as process:
        assert "run: http://" in process.stderr.readline()
        assert "makes no sense here" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 2


def test_an_interrupt_leaves_no_request_half_accepted(tmp_path: Path) -> None:
    answers: list[int] = []
    board = Board.open([write_run(tmp_path / "run", 3)])
    server = listen(make_app(Context(board, Programs(board, None))), board, port=0)
    accept = server.process_request

    def interrupted(request: Any, client_address: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        accept(request, client_address)

    server.process_request = interrupted  # type: ignore[method-assign]
    url = f"http://127.0.0.1:{server.port}/_dash-dependencies"
    asking = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(url, timeout=60).status))
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
                _, said = process.communicate(timeout=60)
            assert words in said
            assert process.returncode == 2
