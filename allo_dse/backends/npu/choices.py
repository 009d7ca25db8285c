"""Choice of the kernel library for the matrix multiplications of a design.

A vendor's kernel accepts the element types and tile shapes of its contract (`multiple_of` in the device file). A
library is offered for a program if at least one multiplication fits one of its kernels. Other multiplications use the
device's other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import Device, NpuDevice
from allo_dse.space.choice import Ask, Question, QuestionChoice
from allo_dse.space.design import Draft


class KernelLibrary(QuestionChoice):
    """One of some libraries. Gene: `kernels`, the position among them; asked where several make a difference.

    Args:
        device: what it selects itself is always offered, and comes first.
        libraries: names of further tables `[kernels.<name>]` of the device file.

    Raises:
        StudyError: for a device without such a table.
    """

    reads = frozenset({"program"})
    writes = frozenset({"device"})

    def __init__(self, device: Device, libraries: Sequence[str]) -> None:
        if not isinstance(device, NpuDevice):
            raise StudyError(f"kernels: {device.name} has no kernel libraries", hint="they belong to NPUs")
        unknown = [name for name in libraries if name not in device.kernels]
        if unknown:
            raise StudyError(
                f"kernels: {device.name} has no kernel library {unknown[0]!r}",
                hint=f"it has {', '.join(device.kernels)}",
            )
        self._device = device
        self._names = tuple(dict.fromkeys((device.kernel_library, *libraries)))

    def offered(self, program: CompiledProgram) -> tuple[str, ...]:
        """The libraries that make a difference to a program."""
        own, *others = self._names
        return (own, *(name for name in others if self._fits(program, name)))

    def _fits(self, program: CompiledProgram, library: str) -> bool:
        return any(
            self._device.has_kernel(library, op.dtypes, op.shape)
            for cls in program.task_classes
            for op in cls.work
            if op.kind == "matmul"
        )

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        library = str(ask(Question.word("kernels", self.offered(draft.compiled), self._names)))
        own = library == self._names[0]
        return replace(draft, device=self._device if own else _with_library(self._device, library))

    def describe(self) -> dict[str, object]:
        return {"kernels": list(self._names)}


@lru_cache(maxsize=64)
def _with_library(device: NpuDevice, library: str) -> NpuDevice:
    return device.with_options(kernel_library=library)
