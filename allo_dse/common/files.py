"""Atomic replacement of files: readers see the old or the new content, never a part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_native_id


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it replaces the file when the block ends. After a failure the file is unchanged.

    Raises:
        OSError: naming the file, if it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # do not replace a device or a pipe
            yield path
            return
        target = Path(os.path.realpath(path))  # keep a link a link
        scratch = target.with_name(f".{target.name}.{get_native_id()}")  # threads and processes write the same files
        try:
            yield scratch
            scratch.replace(target)
        except BaseException:
            with suppress(OSError):
                scratch.unlink()
            raise
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole(path: Path, content: bytes | Iterable[str]) -> None:
    """Write a file so; characters that UTF-8 does not have are escaped."""
    with whole_file(path) as scratch:
        if isinstance(content, bytes):
            scratch.write_bytes(content)
        else:
            with scratch.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                file.writelines([content] if isinstance(content, str) else content)
