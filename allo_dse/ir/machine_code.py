"""Machine code in memory, made from an object file; needs no MLIR."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import llvmlite.binding as llvm

from allo_dse.common.errors import SimulationError

_LOCK = threading.Lock()


@cache
def _prepare() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with suppress(OSError):  # what divides integers of 128 bits; other systems always have it
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)


def processor() -> str:
    """The processor that machine code is made for: its name and what it can do."""
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def data_layout() -> str:
    """Sizes and alignments of this machine's types, as LLVM writes them."""
    with _LOCK:
        _prepare()
        return str(llvm.Target.from_default_triple().create_target_machine().target_data)


class MachineCode:
    """The functions of an object file, as `ir.jit.compile_object` makes it for this machine."""

    def __init__(self, object_file: bytes) -> None:
        with _LOCK:
            _prepare()
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
        """Where a public function lies, as long as this object lives."""
        address: int = self._engine.get_function_address(f"_mlir_ciface_{name}")
        if not address:
            raise SimulationError(f"the compiled module has no function {name}")
        return address
