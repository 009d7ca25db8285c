"""Operators that read what another one wrote as it lies, in place of a rearrangement: their shim channels walk through
it in the order in which the program wants it.

Each is a candidate beside the operator that reads the rearranged tensor, with the same designs as far as descriptors
can walk so, timed anew: runs of contiguous bytes are shorter, and the host may have more descriptors to write. So the
composition chooses, edge by edge, between that and a pass in DRAM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.eval.npu.evaluator import NpuSimulator
from allo_dse.program.index_maps import IntArray

from .fronts import Fronts, Point
from .fusion import Operator
from .layouts import order_of
from .network import Arrange, Convert, Network, Step
from .operators.execute import interface
from .problem import moved_us

Order = IntArray


def with_strided(fronts: Fronts) -> Fronts:
    """The fronts with operators that read as it lies what is rearranged for them; of an FPGA as they are."""
    if not isinstance(fronts.device, NpuDevice) or fronts.strided:
        return fronts
    candidates, strided = list(fronts.candidates), dict[tuple[str, str], tuple[Point | None, ...]]()
    moved = _moved(fronts.network)
    for one in fronts.candidates:
        for variant, orders in _variants(one, moved):
            key = variant.key, variant.walk
            if key not in strided:
                strided[key] = tuple(_points(fronts, one, orders))
            if any(strided[key]):
                candidates.append(variant)
    kept = {key: points for key, points in strided.items() if any(points)}
    return replace(fronts, candidates=tuple(candidates), strided=kept)


def _moved(network: Network) -> dict[str, tuple[Step, Order]]:
    """The rearrangements of a single tensor that are not free, and from where each of their elements comes, -1 where
    that is nowhere; by what they write."""
    found = {}
    for step in network.steps:
        if isinstance(step.work, Arrange) and not step.work.free and not isinstance(step.work, Convert):
            source = step.inputs[0]
            if set(step.inputs) == {source} and source not in network.constants:
                size = int(np.prod(network.shapes[source]))
                order = order_of(step.work, [network.shapes[source]] * len(step.inputs), step.name)
                found[step.output] = step, np.where(order, (order.astype(np.int64) - 1) % size, -1)
    return found


def _variants(one: Operator, moved: Mapping[str, tuple[Step, Order]]) -> Iterator[tuple[Operator, dict[int, Order]]]:
    """The operator with some of what it reads as it lies, and the orders of these by input."""
    for chosen in product(*((False, True) if name in moved else (False,) for name in one.step.inputs)):
        if not any(chosen):
            continue
        inputs, orders = list(one.step.inputs), dict[int, Order]()
        through: list[Arrange | None] = [None] * len(chosen)
        for at, name in enumerate(one.step.inputs):
            if chosen[at]:
                step, orders[at] = moved[name]
                inputs[at], through[at] = step.inputs[0], _single(step)
        told = hashlib.sha256(b"".join(bytes([at]) + own.tobytes() for at, own in orders.items())).hexdigest()[:6]
        yield replace(one, step=replace(one.step, inputs=tuple(inputs), through=tuple(through)), walk=told), orders


def _single(step: Step) -> Arrange:
    """The rearrangement of one array, however often it reads it."""
    work, times = step.work, len(step.inputs)
    assert isinstance(work, Arrange)
    return work if times == 1 else replace(work, function=lambda array: work.function(*[array] * times))


def _points(fronts: Fronts, one: Operator, orders: Mapping[int, Order]) -> Iterator[Point | None]:
    """The designs of an operator, as they read in other orders where that takes less than rearranging before does."""
    steps = {step.output: step for step in fronts.network.steps}
    pass_us = sum(moved_us(fronts.network, steps[one.step.inputs[at]], fronts.device, one.reads[at]) for at in orders)
    for point in fronts.points[one.key]:
        design = point.design.design
        reads = interface(design.program)[0]
        transport = design.mapping.reading({reads[at].name: order for at, order in orders.items()})
        if isinstance(transport, str):
            yield None
            continue
        metrics = NpuSimulator().moved(design, transport)
        latency_us, bound = float(metrics["latency_us"]), dict(metrics["bound"])
        worth = latency_us < point.latency_us + pass_us
        yield replace(point, latency_us=latency_us, bound=bound, proved=False, transport=transport) if worth else None
