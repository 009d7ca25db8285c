"""Public names of a package that are imported when first used, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path


def lazy_exports(package: str, file: str) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package.

    The stub beside it, `__init__.pyi`, lists its names as type checkers read them: `from .module import Name as Name`.

    Args:
        package: its `__name__`. file: its `__file__`.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    module_of = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}

    def attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module_of[name], package), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(module_of), attribute
