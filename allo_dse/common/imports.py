"""Imports of other packages without what those import for features that nobody here uses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def standing_in(stand_ins: Mapping[str, object]) -> Iterator[None]:
    """Import with other objects in place of modules that are not imported yet; with None as if they did not exist.

    Where several threads run, another could import one of them meanwhile: then nothing is replaced.
    """
    own = {name: stand_ins[name] for name in stand_ins.keys() - sys.modules.keys() if threading.active_count() == 1}
    sys.modules.update(own)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in own:
            del sys.modules[name]
