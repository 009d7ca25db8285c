"""Hardware of a pipelined loop: shared operators and multiplexers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Access
from allo_dse.device.device import FpgaDevice

from ..memory import Accesses, Storage, Unrolled, addresses_of, copies_of, split
from ..operators import Unit
from .effects import Use


def muxes(
    device: FpgaDevice,
    storages: Mapping[str, Storage],
    span: int,
    units: Iterable[tuple[Unit, int]],
    accesses: Mapping[str, Addresses],
) -> int:
    """LUTs that feed shared operators, and ports of memories, with what they do in each cycle.

    Args:
        span: cycles over which the copies of an operation are spread.
    """
    inputs = 0
    for unit, copies in units:
        if copies > math.ceil(copies / span) and unit.is_shared:
            inputs += 2 * copies
    for array, (loads, stores) in accesses.items():
        storage = storages[array]
        if loads + stores > storage.ports(device) * storage.banks and not storage.in_registers:
            inputs += loads + 2 * stores
    return round(device.hls.mux_lut_per_input * inputs)


def by_array(uses: Iterable[Use]) -> Mapping[str, Accesses]:
    """Accesses to elements, by their array; variables are none."""
    groups = defaultdict[str, list[tuple[Access, Unrolled]]](list)
    for op, unrolled in uses:
        assert op.access is not None
        if op.access.index:
            groups[op.access.array].append((op.access, unrolled))
    return groups


class Addresses(NamedTuple):
    """Numbers of distinct addresses of an array that a round loads from and stores to."""

    loads: int
    stores: int

    @staticmethod
    def of(accesses: Accesses) -> Addresses:
        unknown = [0, 0]
        known: dict[tuple[Linear, ...], tuple[set[object], set[object]]] = {}
        for access, unrolled in accesses:
            parts = [part for form in access.index if (part := split(form, unrolled))]
            if len(parts) < len(access.index):
                unknown[access.write] += copies_of(unrolled)
                continue
            places = map(tuple, addresses_of([moving for moving, _ in parts], unrolled).tolist())
            known.setdefault(tuple(fixed for _, fixed in parts), (set(), set()))[access.write].update(places)
        loads, stores = (n + sum(len(places[kind]) for places in known.values()) for kind, n in enumerate(unknown))
        return Addresses(loads, stores)
