"""Arrays that two kernels use: a tensor in memory on the chip that one of them writes. Its partition serves both.

A directive about one kernel's argument becomes one about the tensor, and so also about the other kernel's argument:

    before:  partition(fill:x, dim=1, factor=4)           after:  partition(top:X, dim=1, factor=4)

Different directives of two kernels are a conflict. The tasks that use the memory run at once and have an equal part
of each bank's ports, whatever they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from allo_dse.common.records import replace

from ..ir.nest import read_nest
from .compiled import CompiledProgram, Directive
from .kernel import CommonTensor
from .tensors import Tensor

REGION = "top"
"""The scope of directives about the whole program, whatever it is called."""


def is_region(scope: str, program: CompiledProgram) -> bool:
    """Return whether a directive's scope is the whole program."""
    return scope in (program.name, REGION) and scope not in {kernel.name for kernel in program.kernels}


def kernel_of(scope: str, program: CompiledProgram) -> str | None:
    """The kernel that a directive's scope means, by its name or by that of one of its tasks."""
    names = [kernel.name for kernel in program.kernels]
    if scope in names:
        return scope
    tasks = (name for name in names if scope.startswith(f"{name}_"))
    return next((name for name in tasks if scope[len(name) + 1 :].replace("_", "").isdigit()), None)


def kept_in_common(program: CompiledProgram, directives: Iterable[Directive]) -> Mapping[str, CommonTensor]:
    """The tensors in memory on the chip that one kernel writes and another one uses."""
    common = program.common_tensors
    if not common:
        return {}
    return {
        d.name: common[d.name]
        for d in directives
        if d.name in common and d.options.get("memory") == "onchip" and is_region(d.scope, program)
    }


def of_region(program: CompiledProgram, directives: Sequence[Directive]) -> tuple[Directive, ...]:
    """The directives; those about a kernel's argument refer to the tensor if kernels share it."""
    owners = dict(_owners(program, directives))
    if not owners:
        return tuple(directives)
    region = program.name if REGION in {kernel.name for kernel in program.kernels} else REGION
    return tuple(
        replace(d, scope=region, name=owners[number].name) if number in owners else d
        for number, d in enumerate(directives)
    )


class Conflict(Struct, frozen=True):
    """Two kernels that want one memory split in different ways along an axis.

    Attributes:
        uses: per kernel its place in the source, and its schedule's directive.
    """

    tensor: str
    axis: int
    uses: tuple[str, str]


def conflicts(program: CompiledProgram, directives: Sequence[Directive]) -> Iterator[Conflict]:
    """Yield the conflicts between schedules of two kernels that split a common tensor differently."""
    said: dict[tuple[str, int], dict[str, tuple[tuple[str, int], Directive]]] = {}
    for number, tensor in _owners(program, directives):
        directive = directives[number]
        kernel = kernel_of(directive.scope, program)
        assert kernel is not None
        kind = str(directive.options.get("partition_type", "complete"))
        for axis, banks in directive.banks(tensor.shape).items():
            way = ("cyclic" if banks == tensor.shape[axis] else kind, banks)
            said.setdefault((tensor.name, axis), {})[kernel] = way, directive
    for (name, axis), by_kernel in said.items():
        (first, (way, one)), *rest = by_kernel.items()
        for second, (other, two) in rest:
            if other != way:
                yield Conflict(name, axis, (_use(program, first, one, way), _use(program, second, two, other)))


def _use(program: CompiledProgram, kernel: str, directive: Directive, way: tuple[str, int]) -> str:
    location = program.kernel(kernel).location
    place = f" ({location})" if location else ""
    return f"{kernel}{place} has its {directive.name} in {way[1]} banks ({way[0]})"


def _owners(program: CompiledProgram, directives: Sequence[Directive]) -> Iterator[tuple[int, Tensor]]:
    """The numbers of partitions of a kernel's argument that is a shared tensor."""
    kept = kept_in_common(program, directives)
    if not kept:
        return
    arguments = {
        (kernel.name, array.name): port.tensor
        for kernel in program.kernels
        for task_class in kernel.classes
        for array in read_nest(task_class.body.mlir).arrays.values()
        for port in task_class.tensor_ports
        if port.arg == array.argument and port.tensor.name in kept
    }
    for number, directive in enumerate(directives):
        if directive.kind == "partition" and not is_region(directive.scope, program):
            key = (kernel_of(directive.scope, program) or "", directive.name)
            if key in arguments:
                yield number, arguments[key]
