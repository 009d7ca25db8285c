"""The only place that imports MLIR's Python bindings.

They come from the `mlir` distribution (upstream's mlir-python-bindings) when it is installed, else from PyPI's
`torch-mlir`, which carries the same bindings and needs no PyTorch. The import takes 0.1 to 0.5 s, so modules that a
plain `import allo_dse` reaches import this one inside the functions that compile.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

__all__ = [
    "PACKAGE",
    "Op",
    "Operation",
    "Value",
    "arith",
    "async_dialect",
    "cf",
    "execution_engine",
    "ext",
    "func",
    "ir",
    "memref",
    "passmanager",
    "scf",
]


def _package() -> str:
    for name in ("mlir", "torch_mlir"):
        try:
            importlib.import_module(f"{name}.ir")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] != name:
                raise
        else:
            return name
    raise ModuleNotFoundError("allo-dse needs MLIR's Python bindings: pip install torch-mlir", name="torch_mlir")


PACKAGE = _package()

# The bindings search for the module of a dialect at every access to one of its operations, until they find it: 6 % of
# compile time. No module has the names of these dialects.
for _dialect in ("df", "async"):
    sys.modules.setdefault(_name := f"{PACKAGE}.dialects.{_dialect}", ModuleType(_name))


if TYPE_CHECKING:  # both distributions have these types, which `stubs/` writes down
    from torch_mlir import execution_engine, ir, passmanager
    from torch_mlir.dialects import arith, async_dialect, cf, ext, func, memref, scf
    from torch_mlir.ir import Operation, Value
else:
    ir, passmanager, execution_engine = (
        importlib.import_module(f"{PACKAGE}.{name}") for name in ("ir", "passmanager", "execution_engine")
    )
    Operation, Value = ir.Operation, ir.Value

    def __getattr__(name: str) -> object:
        """A dialect, where it is imported."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{PACKAGE}.dialects.{name}")


Op: TypeAlias = ir.Operation | ir.OpView
"""An operation, or the view of it that knows its dialect."""


# The operations of a region tree, listed without MLIR's `walk`.
#
# `walk` calls back into Python, and makes a RuntimeError of whatever is raised there. Ctrl-C may come at any line of
# Python, so that it would be taken for a failure of what is compiled.


def nested_ops(root: Op | ir.Module, *, parents_first: bool = False) -> list[ir.Operation]:
    """An operation and all operations in its regions, each after, or before, those inside it."""
    found: list[ir.Operation] = []
    _collect(root.operation, found, parents_first=parents_first)
    return found


def _collect(op: ir.Operation, found: list[ir.Operation], *, parents_first: bool) -> None:
    if parents_first:
        found.append(op)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _collect(inner.operation, found, parents_first=parents_first)
    if not parents_first:
        found.append(op)
