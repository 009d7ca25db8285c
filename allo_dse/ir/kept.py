"""What compilation made, kept on disk for later processes by the hash of what it was made of.

A cache that cannot be read or written costs time only. Files are written beside their place and moved there, and carry
a hash of their own, so that writers at the same time, full disks and crashes leave nothing wrong behind.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from allo_dse.common.whole_files import write_whole

LIMIT_BYTES = 512 << 20
"""Of all files of a kind; beyond, those unused for longest go until half is left."""
_HASH_BYTES = 32
_COUNTED = "00"
"""Files whose names end so look at how much is kept, one in 256: there are thousands, which takes .2 s."""


def directory() -> Path:
    """Where files are kept: in the user's cache. A user without a home keeps none."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.devnull if base.startswith("~") else base) / "allo-dse"


def known(kind: str, content: bytes) -> bytes | None:
    """What was made of this content before; None where nothing intact is kept."""
    path = _file(kind, content)
    with suppress(OSError):
        found = path.read_bytes()
        if hashlib.sha256(found[_HASH_BYTES:]).digest() == found[:_HASH_BYTES]:
            os.utime(path)  # in use
            return found[_HASH_BYTES:]
    return None


def keep(kind: str, content: bytes, made: bytes) -> None:
    """Remember what was made of a content."""
    path = _file(kind, content)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, hashlib.sha256(made).digest() + made)
        if path.name.endswith(_COUNTED):
            _prune(path.parent)


def _file(kind: str, content: bytes) -> Path:
    return directory() / kind / hashlib.sha256(content).hexdigest()


def _prune(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries]
    total = sum(size for _, size, _ in files)
    if total <= LIMIT_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= LIMIT_BYTES // 2:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size
