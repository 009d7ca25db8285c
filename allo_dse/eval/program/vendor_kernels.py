"""Vendor kernels in a run: compiled code calls back into what the study says they compute."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from allo_dse.common.aliases import Array
from allo_dse.common.errors import SimulationError
from allo_dse.lang.externals import External, external
from allo_dse.lang.storage import storage_dtype
from allo_dse.lang.types import DType
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tasks import ExternalCall, TaskClass


def cycles_of(task_class: TaskClass) -> IntArray:
    """One cycle at each cost site; at vendor kernels the cycles that the study gives."""
    cycles = np.ones(max(1, len(task_class.work)), np.int64)
    sites = [site for site, op in enumerate(task_class.work) if op.kind == "external"]
    for site, call in zip(sites, task_class.externals, strict=True):
        found = external(call.top)
        known = None if found is None else found.cycles_for(tuple(shape for _, shape in call.operands))
        if known is not None:
            cycles[site] = known
    return cycles


class Externals:
    """The C functions that the bodies of a program call; they live as long as this object."""

    def __init__(
        self,
        program: CompiledProgram,
        element: Callable[[DType], np.dtype[Any]] = storage_dtype,
        apply: Callable[[External, ExternalCall, list[Array]], None] | None = None,
    ) -> None:
        """Args:
        element: the NumPy type of elements in memory.
        apply: has a kernel's meaning write its results.
        """
        self._element, self._apply = element, apply or apply_meaning
        self._functions: dict[int, Any] = {}
        self._failed: list[tuple[ExternalCall, Exception]] = []
        for task_class in program.task_classes:
            for call in task_class.externals:
                self._functions[id(call)] = self._function(call)

    def addresses(self, task_class: TaskClass) -> list[int]:
        """The addresses that the body takes as arguments."""
        return [ctypes.cast(self._functions[id(call)], ctypes.c_void_p).value or 0 for call in task_class.externals]

    def require_success(self) -> None:
        """Raise what a vendor kernel's meaning raised during the run.

        Raises:
            SimulationError: naming the vendor kernel and where it is called.
        """
        if self._failed:
            call, error = self._failed[0]
            raise SimulationError(
                f"{call.location}: the meaning of external kernel `{call.top}` failed: {type(error).__name__}: {error}"
            ) from error

    def _function(self, call: ExternalCall) -> Any:
        known = external(call.top)
        if known is None:
            raise SimulationError(
                f"{call.location}: external kernel `{call.top}` has no meaning here",
                hint=f"say what it computes: allo_dse.lang.define_external({call.top!r}, lambda ...: ..., cycles=...)",
            )

        def run(*addresses: int) -> None:
            try:
                if not self._failed:
                    self._apply(
                        known,
                        call,
                        [
                            _array(a, shape, self._element(dtype))
                            for a, (dtype, shape) in zip(addresses, call.operands, strict=True)
                        ],
                    )
            except Exception as error:  # an exception cannot pass through compiled code
                self._failed.append((call, error))

        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(call.operands))(run)


def apply_meaning(known: External, call: ExternalCall, arrays: list[Array]) -> None:
    results = known.meaning(*(arrays[position].copy() for position in call.inputs))
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(call.outputs):
        raise ValueError(f"{len(results)} arrays are returned, {len(call.outputs)} are written")
    for position, result in zip(call.outputs, results, strict=True):
        array, value = arrays[position], np.asarray(result)
        if value.shape != array.shape:
            raise ValueError(f"argument {position} has shape {array.shape}, but {value.shape} is returned")
        array[...] = value.astype(array.dtype)


def _array(address: int, shape: tuple[int, ...], element: np.dtype[Any]) -> Array:
    """The memory at an address as an array."""
    size = element.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = memoryview((ctypes.c_uint8 * size).from_address(address))
    return np.frombuffer(memory, np.uint8).view(element).reshape(shape)
