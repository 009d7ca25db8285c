"""The only place that imports MLIR's Python bindings.

They come from the `mlir` distribution (upstream's mlir-python-bindings) when it is installed, else from PyPI's
`torch-mlir`, which carries the same bindings and needs no PyTorch. The import takes 0.1 to 0.5 s, so modules that a
plain `import allo_dse` reaches import this one inside the functions that compile.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


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


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


# `Any`: the two distributions are interchangeable at run time, and neither can be named statically.
ir: Any = _module("ir")
passmanager: Any = _module("passmanager")
execution_engine: Any = _module("execution_engine")
rewrite: Any = _module("rewrite")
runtime: Any = _module("runtime")
affine: Any = _module("dialects.affine")
arith: Any = _module("dialects.arith")
async_dialect: Any = _module("dialects.async_dialect")
cf: Any = _module("dialects.cf")
ext: Any = _module("dialects.ext")
func: Any = _module("dialects.func")
linalg: Any = _module("dialects.linalg")
llvm: Any = _module("dialects.llvm")
math: Any = _module("dialects.math")
memref: Any = _module("dialects.memref")
scf: Any = _module("dialects.scf")
