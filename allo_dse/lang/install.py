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

# What each module of Allo that programs import is made of here; an empty tuple is a package without names of its own.
MODULES: dict[str, tuple[str, ...]] = {
    "allo": ("allo.dsl", "schedule"),
    "allo.dataflow": ("allo.dataflow",),
    "allo.dsl": ("allo.dsl",),
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
    "allo.library": "it is part of Allo's sources: with a checkout of Allo on Python's path it is loaded from there",
}
"""Why modules of Allo are not here, by how their names begin."""


class _Loader(Loader):
    """Fills a fresh module with the public names of ours."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

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
            return _from_sources(fullname)
        if fullname not in MODULES and fullname.startswith("allo.") and not fullname.startswith("allo.library."):
            reasons = (word for name, word in FOREIGN.items() if f"{fullname}.".startswith(f"{name}."))
            reason = next(reasons, "see docs/language.md for what is")
            raise ModuleNotFoundError(f"allo-dse has no {fullname}: {reason}", name=fullname)
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(fullname + ".") for name in MODULES)
        return ModuleSpec(fullname, _Loader(), is_package=is_package)


def install() -> bool:
    """Make `import allo` and its submodules resolve to this package; calling it again changes nothing.

    Returns:
        Whether `allo` is ours now. An installed Allo is never shadowed: then nothing is done and the result is False.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return True
    if "allo" in sys.modules or _is_installed():
        return False
    sys.meta_path.insert(0, _Finder())  # before the folder that the program is run from: it may be Allo's sources
    return True


def _from_sources(fullname: str) -> ModuleSpec:
    """The package in the sources of Allo: its modules are programs as any others. What it does itself is left out."""
    folders = [str(Path(folder) / "allo" / "library") for folder in sys.path]
    folders = [folder for folder in folders if Path(folder).is_dir()]
    if not folders:
        raise ModuleNotFoundError(f"allo-dse has no {fullname}: {FOREIGN[fullname]}", name=fullname)
    spec = ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = folders
    return spec


def _is_installed() -> bool:
    """Whether there is an Allo that can run: its sources alone, without its compiled part, cannot."""
    spec = importlib.util.find_spec("allo")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return any((Path(folder) / "_mlir").is_dir() for folder in folders)
