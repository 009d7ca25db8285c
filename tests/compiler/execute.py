"""Runs compiled programs without streams, task by task, through MLIR's execution engine: for tests of numbers.

Programs with streams are run by the simulator and tested there.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from allo_dse.common.mlir.bindings import PACKAGE, execution_engine, ir
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.mlir.jit import leave_as_it_is, round_small_floats, run_passes
from allo_dse.compiler.program.compiled import CompiledProgram, Kernel, TaskClass
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.eval.execute.run import run_graph
from allo_dse.mapper.fold.vmg import VMG

RUNTIME = import_module(f"{PACKAGE}.runtime")
PASSES = (
    "builtin.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "arith-expand{include-bf16=true},convert-math-to-llvm,finalize-memref-to-llvm,convert-math-to-libm,convert-arith-to-llvm,"
    "convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)"
)


def verify_bodies(program: CompiledProgram) -> None:
    """Parse and verify every body of a program."""
    with text_context():
        for kernel in program.kernels:
            for task_class in kernel.classes:
                assert ir.Module.parse(task_class.body.mlir).operation.verify()


def run(program: CompiledProgram, *arrays: np.ndarray) -> None:
    """Execute all tasks in order; arrays are written in place, scalars are arrays of rank 0."""
    by_name = dict(zip((t.name for t in program.tensors), arrays, strict=True))
    for kernel in program.kernels:
        pids = np.argwhere(np.ones(kernel.mesh, bool)).astype(np.int64)
        classes = kernel.class_of(pids)
        for position, task_class in enumerate(kernel.classes):
            _run_class(kernel, task_class, pids[classes == position], by_name)


def _run_class(kernel: Kernel, task_class: TaskClass, pids: IntArray, arrays: dict[str, np.ndarray]) -> None:
    assert not task_class.stream_ports, "streams need the simulator"
    engine = _compiled(task_class.body.mlir)
    for pid in pids:
        arguments: list[Any] = [ctypes.pointer(ctypes.c_int64(int(i))) for i in pid]
        for port in task_class.tensor_ports:
            tile = arrays[kernel.args[port.arg].name]
            where = np.unravel_index(port.tile.linear(pid[None, :])[0], port.tile.grid) if tile.ndim else ()
            for position, size in zip(where, port.tile_shape, strict=True):
                tile = np.moveaxis(tile, 0, -1)[..., position * size : (position + 1) * size]
            descriptor = RUNTIME.get_ranked_memref_descriptor(tile)
            arguments.append(ctypes.pointer(ctypes.pointer(descriptor)))
        engine.invoke(task_class.body.symbol, *arguments)


@lru_cache(maxsize=8)
def _compiled(body: str) -> execution_engine.ExecutionEngine:
    text = "\n".join(line for line in body.splitlines() if '"df.cost"' not in line)
    text = text.replace(") {\n", ") attributes {llvm.emit_c_interface} {\n", 1)
    with text_context():
        module = ir.Module.parse(text)
        round_small_floats(module, text)
        run_passes(module, PASSES)
        leave_as_it_is(module)  # it runs once, on little
        return execution_engine.ExecutionEngine(module, opt_level=0)


def simulate(program: CompiledProgram, *arrays: np.ndarray) -> None:
    """Run any program in the simulator, every task on a node of its own; arrays are written in place."""
    run_graph(VMG.of(program), *arrays)
