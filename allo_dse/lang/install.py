"""Make `import allo` resolve to this package when Allo itself is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from allo_dse.common.errors import ProgramError, UnknownModule, did_you_mean

# Modules of this package that make up each module of Allo; an empty tuple is a package without names of its own.
MODULES: dict[str, tuple[str, ...]] = {
    "allo": ("allo.dsl", "schedule"),
    "allo.dataflow": ("allo.dataflow",),
    "allo.dsl": ("allo.dsl",),
    "allo.template": ("allo.dsl",),
    "allo.memory": ("memory",),
    "allo.customize": ("schedule",),
    "allo.ir": (),
    "allo.ir.types": ("types",),
    "allo.ir.utils": ("allo.ir_utils",),
    "allo.utils": ("allo.utils",),
    "allo.backend": (),
    "allo.backend.aie": ("allo.backend_aie",),
    "allo.backend.aie.external_kernel": ("allo.backend_aie",),
    "allo.backend.aie.vliw": ("allo.backend_aie_vliw",),
    "allo.backend.hls": ("allo.backend_hls",),
}


FOREIGN: dict[str, str] = {
    "allo._mlir": "it is the compiled part of Allo",
    "allo.passes": "it works on the modules of Allo's own compiler",
    "allo.ir": "it works on the modules of Allo's own compiler",
    "allo.primitives": "it works on the modules of Allo's own compiler",
    "allo.autoscheduler": "allo-tune searches for schedules",
}
"""Reasons why modules of Allo are not supported, by prefix of their names. Importing them works, and using them is an
error with the reason: Allo's own library and tests import them for a few functions only.
"""


class _Foreign:
    """A name of an unsupported module; any use of it is an error that says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.__dict__.update(_name=name, _reason=reason)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ProgramError(f"allo-dse has no {self._name}: {self._reason}")

    __call__ = __getitem__ = __instancecheck__ = __enter__ = __exit__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}, which is not here>"


class _ForeignLoader(Loader):
    """Makes a module with a `_Foreign` for every name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def exec_module(self, module: ModuleType) -> None:
        def named(name: str) -> _Foreign:
            if name.startswith("__"):
                raise AttributeError(name)
            return _Foreign(f"{module.__name__}.{name}", self.reason)

        module.__dict__["__getattr__"] = named


class _Loader(Loader):
    """Fills a fresh module with the public names of this package's module."""

    def exec_module(self, module: ModuleType) -> None:
        for name in MODULES:
            if name.rpartition(".")[0] == module.__name__:
                importlib.import_module(name)
        for part in MODULES[module.__name__]:  # after the submodules: `allo.customize` is the function, as in Allo
            source = importlib.import_module(f"{__package__}.{part}")
            names = [name for name in vars(source) if not name.startswith("_") and name != "annotations"]
            module.__dict__.update({name: getattr(source, name) for name in names})


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "allo.library":
            # The library in Allo's sources, whose modules are ordinary programs. Search Python's path, and around the
            # program and the current folder: these may lie in a checkout.
            around = [folder for start in (sys.argv[0], "here") for folder in Path(start).absolute().parents]
            folders = [str(folder / "allo" / "library") for folder in (*map(Path, sys.path), *around)]
            folders = [folder for folder in dict.fromkeys(folders) if Path(folder).is_dir()]
            if not folders:
                raise UnknownModule(
                    fullname, hint="it is part of Allo's sources: run the program in a checkout of them"
                )
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = folders
            return spec
        if fullname not in MODULES and fullname.startswith("allo.") and not fullname.startswith("allo.library."):
            reasons = (word for name, word in FOREIGN.items() if f"{fullname}.".startswith(f"{name}."))
            if reason := next(reasons, ""):
                return ModuleSpec(fullname, _ForeignLoader(reason), is_package=True)
            raise UnknownModule(fullname, hint=f"{did_you_mean(fullname, MODULES)}docs/language.md says what there is")
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(fullname + ".") for name in MODULES)
        return ModuleSpec(fullname, _Loader(), is_package=is_package)


def is_installed() -> bool:
    """Return whether `import allo` resolves to this package."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install() -> bool:
    """Make `import allo` and its submodules resolve to this package; further calls change nothing.

    Returns:
        Whether `allo` now resolves to this package. An installed Allo is never shadowed: the result is then False.
    """
    if is_installed():
        return True
    spec = None if "allo" in sys.modules else importlib.util.find_spec("allo")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    if "allo" in sys.modules or any((Path(folder) / "_mlir").is_dir() for folder in folders):
        return False  # a runnable Allo: its sources need its compiled part
    sys.meta_path.insert(0, _Finder())  # before the program's own folder, which may hold Allo's sources
    return True
