"""The server of the app."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from dash import Dash
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from allo_dse.common.errors import StudyError

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


class Site:
    """Hands requests to the app, and refuses those that are not meant for this server.

    A page of another site can make a browser send requests here under a name that resolves to this computer; so a
    server that only serves this computer insists on being called by one of its names.
    """

    def __init__(self, app: Dash, *, any_host: bool) -> None:
        self._app: Wsgi = app.server.wsgi_app
        self._any_host = any_host

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response = _guarded(start_response)
        if not self._any_host and host_of(str(environ.get("HTTP_HOST", ""))) not in LOCAL:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this server is for this computer only\n"]
        origin = str(environ.get("HTTP_ORIGIN") or "")
        if environ.get("REQUEST_METHOD") == "POST" and origin and urlsplit(origin).netloc != environ.get("HTTP_HOST"):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"another site's page cannot change anything here\n"]
        return self._app(environ, start_response)


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


def listen(app: Dash, port: int) -> Server:
    """A server for this computer that is bound but does not answer yet; `serve_forever` makes it.

    Raises:
        StudyError: if the port is taken.
    """
    with bind("127.0.0.1", port) as listening:
        return server_on(listening, app)


def server_on(listening: socket.socket, app: Dash) -> Server:
    """A server on a socket, of which it keeps a copy; `serve_forever` makes it answer."""
    host, port = listening.getsockname()[:2]
    return Server(host, port, Site(app, any_host=host not in LOCAL), _Quiet, fd=listening.fileno())
