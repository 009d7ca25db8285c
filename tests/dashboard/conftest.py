"""A dashboard that is served in this process, and a headless Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import listen
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.programs import Programs

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first is the same without windows: an eighth less to compute."""
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
SLOWDOWN = os.environ.get("SLOWDOWN")
"""How many times as long everything in a page is to take: finds tests that depend on time, on an idle machine."""
TIMEOUT_MS = 300_000
# Too low for the parallel coordinates of the front page, which a processor takes seconds to draw: tests scroll to them.
OPTIONS: dict[str, Any] = {"viewport": {"width": 1440, "height": 640}, "accept_downloads": True}
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
# Only what asks for a graphics card has one emulated, which takes longer than the pages themselves.
ARGUMENTS += ["--disable-gpu-compositing", "--disable-gpu-rasterization", "--in-process-gpu"]
# One process draws all tabs, one after the other, and still has the scripts of the tab before.
ARGUMENTS += ["--renderer-process-limit=1"]
# A page lives for seconds: functions are optimized when they were called ten times as often as they would be else.
ARGUMENTS += ["--js-flags=--invocation-count-for-maglev=6000,--invocation-count-for-turbofan=100000"]
POLLING_MS = 50
"""Otherwise conditions are tried at every frame, for which an idle page is laid out and composed."""

PORTS: list[int] = []
"""Of servers that have ended: browsers keep scripts and what they have compiled of them by address."""


@contextmanager
def served(*paths: Any, study: Any = None) -> Iterator[tuple[str, Context]]:
    """The address of a dashboard on runs."""
    board = Board.open(list(paths)) if paths else Board()
    context = Context(board, Programs(board, study))
    app = make_app(context)
    try:
        server = listen(app, port=PORTS.pop() if PORTS else 0)
    except StudyError:  # another process has it by now
        server = listen(app, port=0)
    connected, accept = [], server.get_request

    def get_request() -> Any:
        request, address = accept()
        connected.append(request)
        return request, address

    server.get_request = get_request  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}", context
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for request in connected:  # a browser that has opened one in advance would ask this server again
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        PORTS.append(server.port)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would help a design is found out, however long that takes."""
    monkeypatch.setattr("allo_dse.eval.recording._SECONDS", 600.0)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    if CHROMIUM is None:
        pytest.skip(f"needs Chromium (apt-get install {BROWSERS[0]})")
    with playwright.sync_playwright() as p:
        yield p.chromium


def wait_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element says something: what follows a gesture comes in several steps."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)", arg=[selector, text]
    )


def drag_over_scatter(page: Any, left: Any, top: Any, right: Any, bottom: Any) -> None:
    """Draw a box; corners as shares of the plotting area."""
    area = page.locator("#scatter .nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + left * area["width"], area["y"] + top * area["height"])
    page.mouse.down()
    for share in (0.5, 1.0):
        page.mouse.move(
            area["x"] + (left + share * (right - left)) * area["width"],
            area["y"] + (top + share * (bottom - top)) * area["height"],
        )
    page.mouse.up()


class Visit:
    """A browser tab, with what went wrong in it and what it asked other servers for."""

    def __init__(self, page: Any, url: Any) -> None:
        self.page, self.url = page, url
        if SLOWDOWN:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": float(SLOWDOWN)})
        page.wait_for_function = partial(page.wait_for_function, polling=POLLING_MS)
        self.problems: list[str] = []
        self.external: list[str] = []
        page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith((url, "data:", "blob:")) else self.external.append(r.url))

    def open(self, path: str = "") -> Any:
        self.page.goto(f"{self.url}/{path}")
        return self.page

    def close(self) -> None:
        """Other tabs are not to know which theme was chosen in this one."""
        self.page.evaluate("() => location.protocol === 'about:' || localStorage.clear()")
        self.page.context.clear_cookies()
        self.page.close()


@pytest.fixture(scope="session")
def shared(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One profile for all tests. It is on disk: only there compiled scripts are kept, which are half of the time of a
    page that is opened."""
    profile = tmp_path_factory.mktemp("profile")
    context = chromium.launch_persistent_context(profile, executable_path=CHROMIUM, args=ARGUMENTS, **OPTIONS)
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    context.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """Serves runs until the end of the test, when the tabs are closed already."""
    with ExitStack() as stack:
        yield lambda *paths: stack.enter_context(served(*paths))


@pytest.fixture
def visit(shared: Any, serve: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs; at the end nothing may have gone wrong in them, and nothing may have been fetched from elsewhere."""
    visits = []

    def make(url: str, *, color_scheme: str | None = None, width: int | None = None, offline: bool = False) -> Visit:
        visits.append(Visit(shared.new_page(), url))
        page = visits[-1].page
        page.emulate_media(color_scheme=color_scheme)
        if width is not None:
            page.set_viewport_size({**OPTIONS["viewport"], "width": width})
        shared.set_offline(offline)
        return visits[-1]

    yield make
    for visit in visits:
        visit.close()
    shared.set_offline(False)
    assert [v.problems for v in visits if v.problems] == []
    assert [v.external for v in visits if v.external] == []
