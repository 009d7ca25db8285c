"""Compiling a module of LLVM-dialect operations to machine code."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import SimulationError
from ..files import write_whole
from .bindings import arith, execution_engine, ir, nested_ops, passmanager

# `MachineCode` loads an object file into memory; it needs no MLIR.


_LOCK = threading.Lock()


@cache
def _llvm() -> Any:
    """LLVM's bindings, which the compiling process does without."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with suppress(OSError):  # division of 128-bit integers; other systems always have it
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)
    return llvm


def processor() -> str:
    """Name and features of the processor that machine code is made for."""
    return f"{_llvm().get_host_cpu_name()} {_llvm().get_host_cpu_features().flatten()}"


@cache
def data_layout() -> str:
    """Sizes and alignments of this machine's types, as LLVM writes them."""
    with _LOCK:
        return str(_llvm().Target.from_default_triple().create_target_machine().target_data)


class MachineCode:
    """The functions of an object file, as `compile_object` makes it for this machine."""

    def __init__(self, object_file: bytes) -> None:
        with _LOCK:
            llvm = _llvm()
            machine = llvm.Target.from_default_triple().create_target_machine()
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_file))
            self._engine.finalize_object()

    def function(self, name: str) -> Callable[[int], None]:
        """A public function of one 64-bit argument and no result.

        The call lets other Python threads run, and holds interrupts back until it returns.
        """
        entry = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.address(name))
        entry.owner = self._engine  # type: ignore[attr-defined]  # the code lives as long as the engine does
        return entry

    def address(self, name: str) -> int:
        """Return the address of a public function, valid as long as this object lives."""
        address: int = self._engine.get_function_address(f"_mlir_ciface_{name}")
        if not address:
            raise SimulationError(f"the compiled module has no function {name}")
        return address


_SMALL_FLOATS = (
    "builtin.module(math-extend-to-supported-types{target-type=f32 extra-types=f16},"
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})"
)

TO_LLVM = (
    "builtin.module(lower-affine,convert-scf-to-cf,"
    "arith-expand{include-bf16=true},convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,"
    "convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,"
    "canonicalize,reconcile-unrealized-casts)"
)
"""func, cf, arith, math, memref -> llvm.

bf16 is rounded by operations on integers. Left to LLVM, conversions call functions that only newer C libraries have
where the processor does not know the type.
"""


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run a pass pipeline in place.

    The input is verified. The result of each pass is not, because that would take longer than most passes.

    Raises:
        SimulationError: with MLIR's message if the module is not valid or a pass fails.
    """
    manager = passmanager.PassManager.parse(pipeline)
    manager.enable_verifier(False)
    try:
        module.operation.verify()
        manager.run(module.operation)
    except ir.MLIRError as error:
        raise SimulationError(f"MLIR cannot compile this program: {error}") from error


def round_small_floats(module: ir.Module, text: str) -> None:
    """Compute in f32 what processors do not compute in bf16 and f16, and round to nearest even after each operation.

    Args:
        text: that the module was read from; without these types there is nothing to do.
    """
    if "f16" not in text:
        return
    run_passes(module, _SMALL_FLOATS)
    # By default the passes allow LLVM to skip roundings between operations, so results would depend on its
    # optimizations.
    exact = ir.Attribute.parse("#arith.fastmath<none>", module.context)
    for op in nested_ops(module):
        if op.name in ("arith.extf", "arith.truncf") and "fastmath" in op.attributes:
            op.attributes["fastmath"] = exact
        if op.name == "arith.extf" and str(op.operands[0].type) == "bf16" and str(op.results[0].type) == "f64":
            with op.location, ir.InsertionPoint(op):  # MLIR widens bf16 to f32 only
                op.operands[0] = arith.ExtFOp(ir.Type.parse("f32"), op.operands[0]).result


def pass_through(function: ir.OpView, *attributes: str) -> None:
    """Give an llvm.func attributes that only LLVM knows, beside those it has."""
    known = function.operation.attributes
    before = [ir.StringAttr(a).value for a in ir.ArrayAttr(known["passthrough"])] if "passthrough" in known else []
    known["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(a) for a in dict.fromkeys([*before, *attributes])])


def leave_as_it_is(module: ir.Module) -> None:
    """Exclude the functions of a module of the llvm dialect from optimization.

    An engine's level applies to LLVM's passes only; code generation optimizes by default.
    """
    for op in module.body.operations:
        if op.operation.name == "llvm.func" and op.regions[0].blocks:
            pass_through(op, "optnone", "noinline")


def compile_object(module: ir.Module, entry: str, layout: str, *, optimize: bool, bf16: bool) -> bytes:
    """An object file, for this processor, of a module lowered to the llvm dialect; `entry` is a public function.

    Args:
        layout: `data_layout()`.
        optimize: False halves the time of compiling, and gives the same results.
        bf16: whether it may have values of this type.
    """
    if bf16:
        # 16-bit integers in place of numbers
        text = _CONSTANT.sub(lambda found: _NUMBER.sub(_bits, found[0]), str(module))
        module = ir.Module.parse(_BF16.sub("i16", text), module.context)
    if not optimize:
        leave_as_it_is(module)
    # Without a layout, sizes are computed before the engine names the machine: an array of 72-bit integers would have
    # 12 bytes an element instead of 16.
    module.operation.attributes["llvm.data_layout"] = ir.StringAttr.get(layout, module.context)
    engine = execution_engine.ExecutionEngine(module, opt_level=2 if optimize else 0, enable_object_dump=True)
    engine.raw_lookup(f"_mlir_ciface_{entry}")  # compiles
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "code.o"
        engine.dump_to_object_file(str(path))
        return path.read_bytes()


# On processors without bf16, LLVM calls functions that many C libraries lack to pass such values from block to block,
# and the process ends. As no operation computes in bf16 any more (`round_small_floats`), integers can hold the bits.

_BF16 = re.compile(r"(?:(?<![@%\w.])|(?<=\dx))bf16\b")
_CONSTANT = re.compile(r"(?<=constant\()(\S+)(?= : bf16\))|(?<=dense<)([^>\"]+)(?=> : tensor<[0-9x]*bf16>)")
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+0-9.eE]+")


def _bits(number: re.Match[str]) -> str:
    """A bf16 number's bits in decimal; MLIR writes those of infinities and NaN."""
    if number[0].startswith("0x"):
        return str(int(number[0], 16))
    (single,) = struct.unpack("<I", struct.pack("<f", float(number[0])))
    return str(single + 0x8000 >> 16)  # MLIR writes the digits that lead to the nearest one


# A disk cache of compiled code, by the hash of its input.
#
# A cache that cannot be read or written only costs time. Files are written under another name, then renamed, and carry
# a hash of their content: concurrent writers, full disks and crashes cannot corrupt it.


LIMIT_BYTES = 512 << 20
"""Of all files of a kind; beyond, those unused for longest go until half is left."""
_HASH_BYTES = 32
_COUNTED = "00"
"""Files whose names end so look at how much is kept, one in 256: there are thousands, which takes .2 s."""


def directory() -> Path:
    """Return the directory of the disk cache, inside the user's cache.

    Without a home directory nothing can be kept: the path lies below a device then.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.devnull if base.startswith("~") else base) / "allo-dse"


def known(kind: str, content: bytes) -> bytes | None:
    """Return the cached result for this content; None if there is none, or none intact."""
    path = _file(kind, content)
    with suppress(OSError):
        found = path.read_bytes()
        if hashlib.sha256(found[_HASH_BYTES:]).digest() == found[:_HASH_BYTES]:
            os.utime(path)  # in use
            return found[_HASH_BYTES:]
    return None


def keep(kind: str, content: bytes, made: bytes) -> None:
    """Remember what was made of a content."""
    path = _file(kind, content)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, hashlib.sha256(made).digest() + made)
        if path.name.endswith(_COUNTED):
            _prune(path.parent)


def _file(kind: str, content: bytes) -> Path:
    return directory() / kind / hashlib.sha256(content).hexdigest()


def _prune(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries]
    total = sum(size for _, size, _ in files)
    if total <= LIMIT_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= LIMIT_BYTES // 2:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size
