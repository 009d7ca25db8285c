"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from allo_dse.common.files import whole_file, write_whole


def _fill_the_disk(path: Path) -> None:
    with whole_file(path) as scratch:
        scratch.write_text("half of what")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_cannot_be_written_leaves_the_file_as_it_was_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "before \udc80")
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        _fill_the_disk(path)
    assert path.read_text() == "before \\udc80"
    assert list(tmp_path.iterdir()) == [path]


def test_neither_links_nor_pipes_are_replaced(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("file")
    write_whole(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
