"""Compiling a module of LLVM-dialect operations to machine code."""

from __future__ import annotations

import tempfile
from pathlib import Path

from allo_dse.common.errors import SimulationError

from .bindings import execution_engine, ir, passmanager
from .machine_code import data_layout
from .nested_ops import nested_ops

_SMALL_FLOATS = (
    "builtin.module(math-extend-to-supported-types{target-type=f32 extra-types=f16},"
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})"
)

TO_LLVM = (
    "builtin.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,"
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

    What goes in is verified; that passes of MLIR keep it valid is not verified again after each, which would take
    longer than most passes.

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
    # The passes allow what follows to leave out roundings between operations: results would hang on what that finds.
    exact = ir.Attribute.parse("#arith.fastmath<none>", module.context)
    for op in nested_ops(module):
        if op.name in ("arith.extf", "arith.truncf") and "fastmath" in op.attributes:
            op.attributes["fastmath"] = exact


def pass_through(function: ir.OpView, *attributes: str) -> None:
    """Give an llvm.func attributes that only LLVM knows, beside those it has."""
    known = function.operation.attributes
    before = [ir.StringAttr(a).value for a in ir.ArrayAttr(known["passthrough"])] if "passthrough" in known else []
    known["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(a) for a in dict.fromkeys([*before, *attributes])])


def leave_as_it_is(module: ir.Module) -> None:
    """Have no code of a module of the llvm dialect optimized: an engine's level is that of LLVM's passes only, and code
    generation optimizes what does not say otherwise."""
    for op in module.body.operations:
        if op.operation.name == "llvm.func" and op.regions[0].blocks:
            pass_through(op, "optnone", "noinline")


def compile_object(module: ir.Module, entry: str, *, optimize: bool = True) -> bytes:
    """An object file, for this processor, of a module lowered to the llvm dialect; `entry` is a public function.

    Args:
        optimize: what it computes is the same without; to compile takes half of the time then. Code with bf16 is always
            optimized: else LLVM hands such values on by functions that not every C library has.
    """
    optimize = optimize or "bf16" in str(module)
    if not optimize:
        leave_as_it_is(module)
    # Else sizes are computed for no machine in particular, before the engine says which one it is: an array of 72-bit
    # integers would have 12 bytes an element and not 16.
    module.operation.attributes["llvm.data_layout"] = ir.StringAttr.get(data_layout(), module.context)
    engine = execution_engine.ExecutionEngine(module, opt_level=2 if optimize else 0, enable_object_dump=True)
    engine.raw_lookup(f"_mlir_ciface_{entry}")  # compiles
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "code.o"
        engine.dump_to_object_file(str(path))
        return path.read_bytes()
