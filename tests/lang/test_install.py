"""`import allo` resolves to the language when Allo is not installed, and never shadows it when it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULES = """
import allo_dse.lang as lang
assert lang.install() and lang.install()
import allo, allo.dataflow as df, allo.dsl, allo.customize, allo.ir, allo.backend
from allo.ir.types import (int8, int16, int32, uint8, Int, UInt, Fixed, UFixed, Float, bfloat16, float16, float32,
                           float64, index, bool, Stream, ConstExpr, Stateful)
from allo.memory import Layout, Memory
from allo.ir.utils import MockBuffer
from allo.utils import get_np_struct_type
from allo.backend.hls import is_available as hls
from allo.backend.aie import is_available as aie, ExternalModule
from allo.backend.aie.external_kernel import ExternalModule as same
assert same is ExternalModule
assert hls("no_such_tool") is False and aie() in (True, False)
assert allo.dataflow.region is df.region and allo.ir.types.int8 is int8
assert callable(allo.customize) and allo.add is allo.dsl.add
from allo.ir.types import AlloType
from allo.backend.aie.vliw import create_vliw_module
assert isinstance(int8, AlloType)
from allo.memory import DTensor
from allo.template import meta_if
from allo.passes import generate_input_output_buffers
from allo._mlir.dialects import func as func_d
for use, word in (
    (lambda: generate_input_output_buffers(None), "compiler"),
    (lambda: func_d.FuncOp(), "compiled part"),
    (lambda: __import__("allo.library.nn"), "sources"),
    (lambda: __import__("allo.datafloww"), "docs/language.md"),
):
    try:
        use()
    except (lang.ProgramError, ModuleNotFoundError) as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)
assert get_np_struct_type(40).itemsize == 5
"""

SHADOW = """
import sys
sys.path.insert(0, {folder!r})
import allo_dse.lang as lang
assert not lang.install()
import allo
assert allo.real
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_every_module_that_programs_import() -> None:
    run(MODULES)


def test_an_installed_allo_is_never_shadowed(tmp_path: Path) -> None:
    (tmp_path / "allo" / "_mlir").mkdir(parents=True)
    (tmp_path / "allo" / "__init__.py").write_text("real = True\n")
    run(SHADOW.format(folder=str(tmp_path)))


def test_sources_without_their_compiled_part_are_no_installation(tmp_path: Path) -> None:
    """So programs run in a checkout of Allo, too."""
    (tmp_path / "allo" / "library").mkdir(parents=True)
    (tmp_path / "allo" / "__init__.py").write_text("from . import _mlir\n")
    (tmp_path / "allo" / "library" / "__init__.py").write_text("from . import _mlir\n")
    (tmp_path / "allo" / "library" / "shapes.py").write_text("from allo.ir.types import int8\nT = int8[4]\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport allo_dse.lang as lang\nassert lang.install()"
    code += "\nimport allo, allo.dataflow\nassert callable(allo.customize)"
    run(code + "\nfrom allo.library.shapes import T\nassert T.shape == (4,)")


WRAPPED = """
import sys
sys.path.insert(0, {folder!r})
import allo_dse.lang as lang
lang.install()
from allo_dse.compiler import compile_region
import program
compiled = compile_region(program.top)
assert [k.name for k in compiled.kernels] == ["core"], compiled
assert [op.kind for op in compiled.kernels[0].classes[0].work] == ["loop"]
"""

REAL_DATAFLOW = """
import functools
def get_pid(): raise RuntimeError
def kernel(mapping=None, args=None):
    return lambda function: function
def region():
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args): raise RuntimeError("real allo would build here")
        return wrapper
    return decorate
"""

PROGRAM = """
import allo, allo.dataflow as df
from allo_dse.lang.types import int32
@df.region()
def top(A: int32[4]):
    @df.kernel(mapping=[4], args=[A])
    def core(a: int32[4]):
        p = df.get_pid()
        for i in allo.grid(4):
            a[p] += i
"""


def test_regions_of_an_installed_allo_are_unwrapped(tmp_path: Path) -> None:
    (tmp_path / "allo" / "_mlir").mkdir(parents=True)
    (tmp_path / "allo" / "__init__.py").write_text("from .dsl import grid\n")
    (tmp_path / "allo" / "dsl.py").write_text("def grid(*extents, name=None): raise RuntimeError\n")
    (tmp_path / "allo" / "dataflow.py").write_text(REAL_DATAFLOW)
    (tmp_path / "program.py").write_text(PROGRAM)
    run(WRAPPED.format(folder=str(tmp_path)))
