"""Access to a Ray cluster before Ray is imported, and the folder of a Ray that this process starts.

Since 2.59 Ray protects clusters with a token if their owner has one. A driver that names the cluster's address does not
send the token by default, and retries for minutes without it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from allo_dse.common.errors import StudyError

from ..search.budget import SIGNALS

DRIVER = "driver"  # file in Ray's folder, locked by the driver, with its process id
KNOCK_SECONDS = 5.0  # for a cluster's address to answer
ASK_SECONDS = 60.0  # for the cluster to say whether it wants a token
AUTH_MODE = "RAY_AUTH_MODE"  # Ray's environment variable
PUT_OFF_SECONDS = 30.0  # longest delay of a signal while Ray is busy: a silent cluster may block for ever
LONGEST_TMPDIR = 26  # bytes; paths of Ray's sockets add 81, and the limit is 107
SETTINGS = b"\x04"  # type of an HTTP/2 server's first frame, after three bytes of length: Ray speaks gRPC
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)  # preface of HTTP/2 clients
REFUSED = "InvalidAuthToken"  # in Ray's reply to a client without a token


def reach(address: str) -> None:
    """Check that a cluster answers, and let Ray send the token if it wants one.

    Raises:
        StudyError: when no Ray cluster answers at a `host:port`.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return
    try:
        with socket.create_connection((host, int(port)), KNOCK_SECONDS) as connection:
            connection.sendall(HELLO)
            answer = connection.recv(64)
    except TimeoutError as error:
        raise unreachable(address, f"no answer in {KNOCK_SECONDS:.0f} s") from error
    except OSError as error:
        raise unreachable(address, str(error)) from error
    if answer[3:4] != SETTINGS and "RAY_USE_TLS" not in os.environ:
        raise unreachable(address, "what listens there is no Ray cluster")
    # Ray reads the variable only when it is imported. After that it is too late.
    decided = AUTH_MODE in os.environ or "ray" in sys.modules
    if not decided and not address.startswith("ray://") and _wants_token(address):
        os.environ[AUTH_MODE] = "token"


def have_token() -> None:
    """Set a token for a Ray that this process starts, if Ray cannot write one to the home folder."""
    home = os.path.expanduser("~")
    place = os.path.join(home, ".ray")
    if not os.access(place if os.path.exists(place) else home, os.W_OK | os.X_OK):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex())


@contextmanager
def undisturbed(seconds: float = PUT_OFF_SECONDS) -> Iterator[None]:
    """Delay exceptions from signals until the block ends. Ray's own SIGTERM handler is kept out.

    An interrupted start or end of Ray would end the process.

    Args:
        seconds: longest delay; later signals raise at once.

    Raises:
        KeyboardInterrupt: the delayed exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {int(n): handler for n in SIGNALS if callable(handler := signal.getsignal(n))}
    until, set_handler = time.monotonic() + seconds, signal.signal
    stops: list[KeyboardInterrupt] = []

    def put_off(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except KeyboardInterrupt as stop:
            if time.monotonic() > until:
                raise
            stops.append(stop)

    try:
        for number in before:
            signal.signal(number, put_off)
        signal.signal = lambda signalnum, handler: signal.getsignal(signalnum)
        yield
    finally:
        signal.signal = set_handler
        for number, handler in before.items():
            signal.signal(number, handler)
    if stops:
        raise stops[-1]


def unreachable(address: str | None, error: str) -> StudyError:
    """Return the error for a cluster that cannot be used."""
    hint = "one worker needs no Ray"
    if address:
        hint = "start a cluster with `ray start --head`, or leave --ray out to use this machine"
    if REFUSED in error or "token" in error:
        hint = f"set {AUTH_MODE}=token, and see `ray get-auth-token` on the cluster's head for the token"
    return StudyError(f"cannot reach Ray at {address or 'this machine'}: {error}", hint=hint)


def _wants_token(address: str) -> bool:
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode != 0 and REFUSED in done.stderr


class RayFolder:
    """Folder for the sockets and logs of a Ray that this process starts. Only logs of a failure outlast it.

    Ray's default folder also holds other people's clusters.

    Attributes:
        path: Ray's subfolder; empty until it is made. Ray opens it to all users of the computer, but the folder around
            it belongs to its owner alone.
    """

    path = ""
    _kept = False
    _driver = -1

    def make(self) -> str:
        """Make the folder; return the path of Ray's subfolder."""
        place = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        if len(os.fsencode(place)) > LONGEST_TMPDIR:
            place = "/tmp"
        os.makedirs(place, exist_ok=True)
        for left in Path(place).glob(f"ray-*/{DRIVER}"):
            _remove_of_dead(left)
        own = tempfile.mkdtemp(prefix="ray-", dir=place)
        self.path = os.path.join(own, "r")
        os.mkdir(self.path)
        self._driver = os.open(os.path.join(own, DRIVER), os.O_WRONLY | os.O_CREAT)
        fcntl.flock(self._driver, fcntl.LOCK_EX)
        os.write(self._driver, b"%d\n" % os.getpid())
        return self.path

    def with_logs(self, failure: str) -> str:
        """Keep Ray's logs, and add their location to a failure message."""
        logs = os.path.join(self.path, "session_latest", "logs")
        if not self.path or not os.path.exists(logs):
            return failure
        self._kept = True
        Path(self.path).with_name(DRIVER).unlink(missing_ok=True)
        return f"{failure} (Ray's logs: {logs})"

    def remove(self) -> None:
        """Remove it, when Ray has ended."""
        if self.path and not self._kept:
            shutil.rmtree(os.path.dirname(self.path), ignore_errors=True)
        if self._driver >= 0:
            os.close(self._driver)
            self._driver = -1


def _remove_of_dead(driver: Path) -> None:
    """Remove the folder of a driver that was killed."""
    with suppress(OSError):
        if driver.stat().st_uid != os.getuid():
            return
        with driver.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its driver lives
            if file.read():  # empty while it is being made
                shutil.rmtree(driver.parent, ignore_errors=True)
