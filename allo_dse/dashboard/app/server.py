"""The server: the app at /, Optuna's dashboard where its own addresses are."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dash import Dash
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from allo_dse.common.errors import StudyError

from ..data.runs import Board, Opening
from ..data.table import RunTable

if TYPE_CHECKING:
    import optuna

MAX_TRIALS = 5_000
"""Designs that are handed over; Optuna's dashboard sends all of them to the browser."""


def storage_of(board: Board) -> optuna.storages.InMemoryStorage:
    """The runs as studies in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.InMemoryStorage()
    for name, run in zip(board.names, board.runs, strict=True):
        study = optuna.create_study(
            study_name=name, storage=storage, directions=[o.direction for o in run.facts.objectives]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(run.objectives)
        study.add_trials(_trials(run))
    return storage


def _trials(run: RunTable) -> list[optuna.trial.FrozenTrial]:
    import optuna

    names = run.names("parameter", "mapping", varying=True)
    choices: dict[str, optuna.distributions.BaseDistribution] = {
        n: optuna.distributions.CategoricalDistribution([*run.columns[n].categories, None]) for n in names
    }
    first = max(0, len(run) - MAX_TRIALS)
    columns = {n: (run.columns[n].codes, [*run.columns[n].categories, None]) for n in names}
    ok, losses = run.ok, [run.numbers(n) for n in run.objectives]
    made = []
    for row in range(first, len(run)):
        params = {n: values[codes[row]] for n, (codes, values) in columns.items()}
        values = [float(column[row]) for column in losses]
        failed = any(v != v for v in values)
        made.append(
            optuna.trial.create_trial(
                params=params,
                distributions=choices,
                values=None if failed else values,
                state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
                user_attrs={"design": run.keys[row], "feasible": bool(ok[row])},
            )
        )
    return made


# The socket is open before the server is made, so that early requests wait instead of failing.


LOCAL = ("localhost", "127.0.0.1", "::1")
_BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; port 0 takes a free one.

    Raises:
        StudyError: if that cannot be, in particular because something else listens there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise _refused(host, port, error) from error
    return listening


def _refused(host: str, port: int, error: OSError | OverflowError) -> StudyError:
    code = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if code == errno.EADDRINUSE:
        return StudyError(
            f"port {port} of {host} is in use, perhaps by another dashboard",
            hint="--port 0 takes a free one",
        )
    if code == errno.EADDRNOTAVAIL:
        return StudyError(f"{host} is not an address of this computer", hint="--host 0.0.0.0 listens on all of its own")
    words = os.strerror(code) if code else str(error)
    return StudyError(f"cannot listen on {host}:{port}: {words}", hint="choose another --host or --port")


def url_of(listening: socket.socket) -> str:
    """Return the server's address for a browser on this computer."""
    host, port = listening.getsockname()[:2]
    name = "localhost" if host in (*LOCAL, "0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


Wsgi = Callable[[dict[str, object], object], Iterable[bytes]]
_OPTUNA_NEEDS = ("/dashboard", "/api", "/artifacts")
_NEED_RUNS = (
    "/_dash-layout",
    "/_dash-update-component",
    "/gestures",
    "/rows",
    "/growth",
    "/dashboard",
    "/api",
    "/artifacts",
)
_HOST = re.compile(r"(?:(?P<name>[^:\[\]]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::\d+)?")
_GUARDS = {
    # Plotly compiles text to functions, Dash inlines its settings in the page, and pictures are saved from memory.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self' data: blob:; object-src 'none'; base-uri 'self'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_OPTUNA_PATHS = ("/dashboard", "/api", "/static", "/artifacts", "/img")


class Site:
    """Hands requests to the app or to Optuna's dashboard, and refuses those that are not meant for this server.

    A page of another site can make a browser send requests here under a name that resolves to this computer; so a
    server that only serves this computer insists on being called by one of its names.

    While the runs are being read, it answers requests that do not need them; others wait.
    """

    def __init__(self, app: Dash, board: Board, opening: Opening | None = None, *, any_host: bool) -> None:
        self._app: Wsgi = app.server.wsgi_app
        self._board = board
        self._opening = opening
        self._any_host = any_host
        self._lock = threading.Lock()
        self._optuna: tuple[str, Wsgi] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response = _guarded(start_response)
        if not self._any_host and host_of(str(environ.get("HTTP_HOST", ""))) not in LOCAL:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this server is for this computer only\n"]
        origin = str(environ.get("HTTP_ORIGIN") or "")
        if environ.get("REQUEST_METHOD") == "POST" and origin and urlsplit(origin).netloc != environ.get("HTTP_HOST"):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"another site's page cannot change anything here\n"]
        path = str(environ.get("PATH_INFO", "/"))
        if self._opening is not None and path.startswith(_NEED_RUNS):
            self._opening.wait()
        if path.rstrip("/") == "/optuna":
            start_response("302 Found", [("Location", "/dashboard")])
            return [b""]
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in _OPTUNA_PATHS):
            return self._optuna_app(renew=path.startswith("/dashboard"))(environ, start_response)
        return self._app(environ, start_response)

    def _optuna_app(self, *, renew: bool) -> Wsgi:
        """Optuna's dashboard on the runs as they are when its page is opened."""
        from optuna_dashboard import wsgi

        with self._lock, self._board.lock:
            if self._optuna is None or (renew and self._optuna[0] != self._board.version):
                self._optuna = self._board.version, wsgi(storage_of(self._board))
            return self._optuna[1]


def host_of(header: str) -> str:
    """The host that a Host header names, without its port; "" where it names none."""
    found = _HOST.fullmatch(header)
    return (found["name"] or found["address"]) if found else ""


def _guarded(start_response: Any) -> Any:
    """The same with headers that keep other sites' pages, frames and scripts out."""

    def guarded(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        return start_response(status, [*headers, *_GUARDS.items()], *more)

    return guarded


class _Quiet(WSGIRequestHandler):
    """Does not write a line per request."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


class Server(ThreadedWSGIServer):
    """Answers requests, each in a thread of its own."""

    _interrupted = False

    @contextmanager
    def interrupted_between_requests(self) -> Iterator[None]:
        """Ctrl-C ends `serve_forever` between two requests: while the thread of one starts, an exception would leave
        Python's locks in no state. A second Ctrl-C is raised where it comes.
        """
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def serve_forever(self, poll_interval: float = 0.1) -> None:
        super().serve_forever(poll_interval)

    def service_actions(self) -> None:
        super().service_actions()
        if self._interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True


def listen(app: Dash, board: Board, *, host: str = "127.0.0.1", port: int = 8050) -> Server:
    """A server that is bound but does not answer yet; `serve_forever` makes it.

    Raises:
        StudyError: if the port is taken.
    """
    with bind(host, port) as listening:
        return server_on(listening, app, board)


def server_on(listening: socket.socket, app: Dash, board: Board, opening: Opening | None = None) -> Server:
    """A server on a socket, of which it keeps a copy; `serve_forever` makes it answer."""
    host, port = listening.getsockname()[:2]
    site = Site(app, board, opening, any_host=host not in LOCAL)
    return Server(host, port, site, _Quiet, fd=listening.fileno())
