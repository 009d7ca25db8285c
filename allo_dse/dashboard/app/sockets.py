"""The socket that the server listens on. It is open before the server is made: what comes meanwhile waits."""

from __future__ import annotations

import errno
import os
import socket

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
