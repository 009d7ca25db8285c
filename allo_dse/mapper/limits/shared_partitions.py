"""Tensors that several kernels use: one partition serves all of them, and may be too little for one.

`partition` of a region's tensor is one directive, so every kernel has the same banks of it. Where a kernel's loop still
waits for ports, its accesses do not go along the dimension, or not in the steps, that the banks are of.
"""

from __future__ import annotations

from msgspec import Struct

from .fpga import FpgaCosts


class Use(Struct, frozen=True):
    """How a kernel uses a tensor.

    Attributes:
        place: the kernel, and where it is in the source.
        waiting: of a loop that waits for the ports of the tensor's banks, its name and interval; None if none does.
    """

    place: str
    waiting: tuple[str, int] | None

    def __str__(self) -> str:
        if self.waiting is None:
            return f"serve {self.place}"
        loop, ii = self.waiting
        return f"are too few for {self.place}, whose loop {loop} waits for their ports (interval {ii})"


class Conflict(Struct, frozen=True):
    """A tensor whose banks one of its uses would have otherwise.

    Attributes:
        uses: one per kernel, those that wait last.
    """

    tensor: str
    banks: int
    uses: tuple[Use, ...]

    def __str__(self) -> str:
        return f"the {self.banks} bank{'s' * (self.banks > 1)} of {self.tensor} {', '.join(map(str, self.uses))}"


def partition_conflicts(mapping: FpgaCosts) -> list[Conflict]:
    """The tensors that at least two kernels use and whose partition does not serve all of them.

    Raises:
        SimulationError: where control depends on data.
    """
    found = []
    for tensor, by_kernel in _uses(mapping).items():
        uses = sorted((use for _, use in by_kernel.values()), key=lambda use: use.waiting is not None)
        if len(uses) > 1 and uses[-1].waiting:
            found.append(Conflict(tensor, max(banks for banks, _ in by_kernel.values()), tuple(uses)))
    return found


def _uses(mapping: FpgaCosts) -> dict[str, dict[str, tuple[int, Use]]]:
    """By tensor and kernel the banks that the kernel finds, and how it uses them: its class that waits longest."""
    found: dict[str, dict[str, tuple[int, Use]]] = {}
    classes = {(k.name, c.name): (k, c, pid) for uses in mapping.vmg.uses.classes for k, c, pid in uses}
    for kernel, task_class, pid in classes.values():
        place = f"{kernel.name} ({kernel.location})" if kernel.location is not None else kernel.name
        cost = mapping.cost(task_class, pid)
        tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports if port.tensor.shape}
        for name, storage in cost.storages.items():
            if storage.array.argument in tensors:
                slow = [loop for loop in cost.loops if loop.limit == f"ports of {name}"]
                worst = max(slow, key=lambda loop: loop.ii, default=None)
                use = Use(place, (worst.names[-1], worst.ii) if worst is not None else None)
                uses = found.setdefault(tensors[storage.array.argument], {})
                known = uses.get(kernel.name)
                if known is None or (use.waiting or ("", 0))[1] > (known[1].waiting or ("", 0))[1]:
                    uses[kernel.name] = storage.banks, use
    return found
