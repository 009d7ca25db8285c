"""Whether a folded graph with its schedule fits an FPGA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from allo_dse.common.errors import StaticControlError
from allo_dse.device.fpga_model import RESOURCES, Resources
from allo_dse.program.common_arrays import conflicts, is_region, kept_in_common, of_region
from allo_dse.program.directive import Directive

from ..fold.vmg import VMG
from ..model.violation import Violation
from .fpga import FpgaCosts

_INTERFACES_PER_PORT = 16  # what one interconnect joins into one port of the memory

_FAR_TOO_LARGE = 8
"""Times a resource of the device: a design that needs more is refused without the cost of connecting its elements."""


def fpga_violations(mapping: FpgaCosts) -> list[Violation]:
    """All limits of an FPGA that a mapping exceeds; empty when it fits."""
    vmg = mapping.vmg
    schedule = (*vmg.program.schedule, *mapping.schedule)
    found = [*_partitions(vmg, schedule), *_common(mapping, schedule), *_interfaces(mapping)]
    try:
        return [*found, *_resources(mapping)]
    except StaticControlError as error:
        return [*found, Violation("static_control", vmg.program.name, 1, 0, f"{error.message}; {error.hint}")]


def _partitions(vmg: VMG, schedule: Sequence[Directive]) -> Iterator[Violation]:
    """A tensor cannot have more banks along a dimension than elements."""
    shapes = {tensor.name: tensor.shape for tensor in vmg.program.tensors}
    for directive in of_region(vmg.program, schedule):
        shape = shapes.get(directive.name)
        if directive.kind != "partition" or shape is None or not is_region(directive.scope, vmg.program):
            continue
        for axis, banks in directive.banks(shape).items():
            if banks > shape[axis]:
                where = f"dimension {axis + 1} of {directive.name}"
                yield Violation("partition_factor", where, banks, shape[axis])


def _common(mapping: FpgaCosts, schedule: Sequence[Directive]) -> Iterator[Violation]:
    """What kernels have in common has one partition, and a port of each bank for every task that uses it."""
    program, ports = mapping.vmg.program, mapping.device.arrays.ports
    for found in conflicts(program, schedule):
        yield Violation(
            "partition_conflict", f"dimension {found.axis + 1} of {found.tensor}", 2, 1, ", ".join(found.uses)
        )
    for tensor, common in kept_in_common(program, schedule).items():
        if common.users > ports:
            users = ", ".join(k.name for k in program.kernels if any(arg.name == tensor for arg in k.args))
            yield Violation("bank_ports", tensor, common.users, ports, users)


def _interfaces(mapping: FpgaCosts) -> Iterator[Violation]:
    needed = sum(not use.onchip for use in mapping.tensors)
    limit = mapping.device.external.ports * _INTERFACES_PER_PORT
    if needed > limit:
        yield Violation("axi_interfaces", mapping.device.name, needed, limit)


def _resources(mapping: FpgaCosts) -> Iterator[Violation]:
    """Resources beyond the device's; of the processing elements only where these need a multiple of what there is."""
    alone = list(_beyond(mapping, mapping.processing))
    is_hopeless = any(violation.needed > _FAR_TOO_LARGE * violation.limit for violation in alone)
    yield from alone if is_hopeless else _beyond(mapping, mapping.resources)


def _beyond(mapping: FpgaCosts, parts: Mapping[str, Resources]) -> Iterator[Violation]:
    total = Resources.total(parts.values())
    for resource in RESOURCES:
        needed, limit = getattr(total, resource), mapping.device.limit(resource)
        if needed > limit:
            detail = ", ".join(f"{part} {n:,}" for part, r in parts.items() if (n := getattr(r, resource)))
            yield Violation(resource, mapping.device.name, needed, limit, detail)
