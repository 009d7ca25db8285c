"""Which kernel library the matrix multiplications of a design are taken from.

A vendor's kernel takes element types and tile shapes that its contract names (`multiple_of` in the device file). A
library is offered for the programs in which at least one multiplication fits one of its kernels; what does not fit is
done by the device's other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from allo_dse.device.device import Device, NpuDevice
from allo_dse.errors import StudyError
from allo_dse.program.compiled import CompiledProgram


class KernelChoice:
    """The libraries that designs choose from.

    Args:
        device: what it selects itself is always offered, and comes first.
        libraries: names of further tables `[kernels.<name>]` of the device file.

    Raises:
        StudyError: for a device without such a table.
    """

    def __init__(self, device: Device, libraries: Sequence[str]) -> None:
        if not isinstance(device, NpuDevice):
            raise StudyError(f"kernels: {device.name} has no kernel libraries", hint="they belong to NPUs")
        unknown = [name for name in libraries if name not in device.kernels]
        if unknown:
            raise StudyError(
                f"kernels: {device.name} has no kernel library {unknown[0]!r}",
                hint=f"it has {', '.join(device.kernels)}",
            )
        self.device = device
        self.names = tuple(dict.fromkeys((device.kernel_library, *libraries)))

    def offered(self, program: CompiledProgram) -> tuple[str, ...]:
        """The libraries that make a difference to a program."""
        own, *others = self.names
        return (own, *(name for name in others if self._fits(program, name)))

    def _fits(self, program: CompiledProgram, library: str) -> bool:
        return any(
            self.device.has_kernel(library, op.dtypes, op.shape)
            for kernel in program.kernels
            for cls in kernel.classes
            for op in cls.work
            if op.kind == "matmul"
        )

    def nearest(self, program: CompiledProgram, wanted: int) -> str:
        """The library of a number if it is offered, and else the device's own."""
        name = self.names[wanted]
        return name if name in self.offered(program) else self.names[0]

    def applied(self, design: Any, library: str) -> Any:
        """The design with its multiplications from a library."""
        return design if library == self.names[0] else replace(design, device=_with_library(self.device, library))


@lru_cache(maxsize=64)
def _with_library(device: NpuDevice, library: str) -> NpuDevice:
    return device.with_options(kernel_library=library)
