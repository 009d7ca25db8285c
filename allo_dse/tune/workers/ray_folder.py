"""The folder of a Ray that a run starts on its machine."""

from __future__ import annotations

import os
import shutil
import tempfile

LONGEST_TMPDIR = 28  # bytes: Ray's sockets are in it, whose names take 79 beside it of the 107 that they can have


class RayFolder:
    """Where a Ray of our own has its sockets and logs, of which only logs of something that failed outlast it.

    Not Ray's own place for that: there other people's clusters are too.

    Attributes:
        path: empty as long as there is none.
    """

    path = ""
    _kept = False

    def make(self) -> str:
        """Make the folder; gives its path."""
        place = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        if len(os.fsencode(place)) > LONGEST_TMPDIR:
            place = "/tmp"
        os.makedirs(place, exist_ok=True)
        self.path = tempfile.mkdtemp(prefix="ray-", dir=place)
        return self.path

    def with_logs(self, failure: str) -> str:
        """What has failed, and where Ray's logs are, which are kept then."""
        logs = os.path.join(self.path, "session_latest", "logs")
        if not self.path or not os.path.exists(logs):
            return failure
        self._kept = True
        return f"{failure} (Ray's logs: {logs})"

    def remove(self) -> None:
        """Remove it, when Ray has ended."""
        if self.path and not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)
