"""Compiling a module of LLVM-dialect operations to machine code, and calling into it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from allo_dse.common.errors import SimulationError

from .bindings import execution_engine, ir, passmanager

BFLOAT16 = (
    "math-extend-to-supported-types{target-type=f32 extra-types=f16},"
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},arith-expand{include-bf16=true}"
)
"""bf16 as f32, rounded to nearest even after each operation by operations on integers.

Left to LLVM, conversions call functions that only newer C libraries have where the processor does not know the type.
"""

TO_LLVM = (
    "builtin.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    f"{BFLOAT16},convert-math-to-llvm,"
    "convert-math-to-libm,finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"
    "convert-func-to-llvm,canonicalize,reconcile-unrealized-casts)"
)
"""func, cf, arith, math, memref -> llvm."""


@cache
def _load_wide_arithmetic() -> None:
    """Make the functions that divide integers of 128 bits known to compiled code; other systems always have them."""
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run a pass pipeline in place.

    Raises:
        SimulationError: with MLIR's message if a pass fails.
    """
    try:
        passmanager.PassManager.parse(pipeline).run(module.operation)
    except ir.MLIRError as error:
        raise SimulationError(f"MLIR cannot compile this program: {error}") from error


class CompiledModule:
    """Machine code of a module that has been lowered to the llvm dialect."""

    def __init__(self, module: ir.Module) -> None:
        _load_wide_arithmetic()
        # No object dump: it would keep a second copy of the code.
        self._engine = execution_engine.ExecutionEngine(module, opt_level=3, enable_object_dump=False)

    def function(self, name: str) -> Callable[[int], None]:
        """A public function of one 64-bit argument and no result.

        The call lets other Python threads run, and holds interrupts back until it returns.
        """
        owner = self._engine  # the code lives as long as the engine does
        address = owner.raw_lookup(f"_mlir_ciface_{name}")
        if not address:
            raise SimulationError(f"the compiled module has no function {name}")
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

        def call(argument: int) -> None:
            value = ctypes.c_int64(argument)
            packed = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            entry(ctypes.addressof(packed))

        call.owner = owner  # type: ignore[attr-defined]
        return call
