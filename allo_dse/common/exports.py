"""Public names of a package that are imported when first used, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence


def lazy_exports(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: per module, as in a relative import without the first dot, the names that are imported from it.
    """
    module_of = {name: module for module, names in homes.items() for name in names}

    def attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f".{module_of[name]}", package), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(module_of), attribute
