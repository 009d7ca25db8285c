"""Imports that cost little: public names on first use, and other packages without their unused features."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def lazy_exports(package: str, file: str) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package, whose names are imported when first used.

    The stub beside it, `__init__.pyi`, lists them as type checkers read it: `from .module import A as A, B as B`.

    Args:
        package: its `__name__`. file: its `__file__`.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    found = re.findall(r"^from (\S+) import ([^(]+?|\(.+?\))$", stub, re.MULTILINE | re.DOTALL)
    module_of = {name: module for module, names in found for name in re.findall(r"(\w+) as", names)}

    def attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module_of[name], package), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(module_of), attribute


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
