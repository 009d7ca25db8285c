"""A network and the designs of its operators as a problem of `solver`: times in ticks, shares of the bandwidth."""

from __future__ import annotations

import math

from allo_dse.common.records import Frozen, replace
from allo_dse.device.device import Device
from allo_dse.eval.launches import Launches
from allo_dse.lang.types import DType

from .fronts import Fronts, Point, launches_of
from .network import Arrange, Convert, Host, Network, Step
from .operators.execute import Work
from .solver.problem import BANDWIDTH, Choice, Problem, ticks

HOST_GFLOPS = 32.0
"""Of one core: with AVX2 two units have 8 multiply-adds each, 128 at 4 GHz; small tensors reach a quarter of that."""
HOST_GB_S = 10.0
"""Bandwidth of one core beside others, a tenth of two channels of DDR5-6000."""
HOST_CALL_US = 5.0
"""To call an operator of onnxruntime."""


def choice_of(point: Point, launches: Launches) -> Choice:
    """Describe a design as a choice of the problem, with its share of the bandwidth."""
    share = launches.bandwidth(point.latency_us, point.dram_bytes, point.bound)
    needs = (point.columns, *(point.resources[name] for name in launches.resources if point.resources))
    return Choice(needs, ticks(point.latency_us), min(BANDWIDTH, math.ceil(share * BANDWIDTH)))


def moved_us(network: Network, step: Step, device: Device, dtype: DType) -> float:
    """Return the time of a rearrangement that is not free, or of a host step.

    Every element that is not in its place is written once, as `dtype`, at the DRAM's bandwidth, while others are read.
    The host computes no faster than one of its cores does.
    """
    if isinstance(step.work, Host) and step.work.bytes:
        computes = max(step.work.flops / (HOST_GFLOPS * 1e3), step.work.bytes / (HOST_GB_S * 1e3))
        return HOST_CALL_US + computes
    if isinstance(step.work, Arrange) and (step.work.free or step.work.written == 0):
        return 0.0
    written = step.work.written if isinstance(step.work, Arrange) else -1
    elements = written if written > 0 else math.prod(network.shapes[step.output])
    return elements * dtype.bytes / (launches_of(device).dram_gb_s * 1e3)


Origins = dict[int, tuple[int, bool]]
"""The steps that a tensor comes from, -1 for the inputs: the ticks since they were done, and whether its elements are
theirs, not what the host made of them."""


def origins_of(network: Network, device: Device, dtype: DType) -> dict[str, Origins]:
    """Return the origins of every tensor, if everything between programs writes `dtype`."""
    found: dict[str, Origins] = {name: {-1: (0, False)} for name in network.inputs}
    number = 0
    for step in network.steps:
        if isinstance(step.work, Work):
            found[step.output] = {number: (0, True)}
            number += 1
            continue
        more, own = ticks(moved_us(network, step, device, dtype)), not isinstance(step.work, Host)
        merged: Origins = {}
        for before, (time, theirs) in (pair for name in step.inputs for pair in found.get(name, {}).items()):
            longest, any_theirs = merged.get(before, (0, False))
            merged[before] = max(time + more, longest), (theirs and own) or any_theirs
        found[step.output] = merged
    return found


class Calls(Frozen):
    """Times of a host program.

    Attributes:
        more_us: that an operator takes beside its design's latency; negative for the overhead of a call that it shares.
        call_us: overhead of a call of several operators.
        between_us: beginning another launch within a call.
        alone: a launch has one program, and each call begins with configuring the device.
    """

    more_us: float = 0.0
    call_us: float = 0.0
    between_us: float = 0.0
    alone: bool = False


def called(problem: Problem, calls: Calls) -> Problem:
    """Return the problem for a host program. Elements that the host moves between operators end a call."""
    columns, begin = problem.limits[0], ticks(calls.call_us + calls.between_us * calls.alone)
    sequence = calls.alone and calls.call_us > 0

    def own(choice: Choice) -> Choice:
        needs = (1 if choice.needs[0] <= columns else 2,) if sequence else choice.needs  # one program in a launch
        return Choice(needs, max(1, choice.ticks + ticks(calls.more_us)), choice.bandwidth)

    return replace(
        problem,
        choices=tuple(tuple(map(own, one)) for one in problem.choices),
        limits=(1,) if sequence else problem.limits,
        between=ticks(calls.between_us),
        release=tuple(one + begin for one in problem.release),
        after=tuple({o: wait + begin if wait else 0 for o, wait in one.items()} for one in problem.after),
        alone=calls.alone and not sequence,
    )


def problem_of(fronts: Fronts) -> Problem:
    """Build the problem of composing a network.

    Elements that an operator reads in another type than they were written in are converted first. All are written
    once at the DRAM's bandwidth, before any rearrangement.
    """
    network, device, candidates = fronts.network, fronts.device, fronts.candidates
    launches = fronts.launches
    number = {step.name: position for position, (step, _) in enumerate(network.worked)}
    copies = 1 + max((one.copy for one in candidates), default=0)
    keys = [(key, copy) for key in fronts.points for copy in range(copies)]
    does = tuple(tuple(number[name] for name in one.names) for one in candidates)
    reads, writes = [one.step.reads for one in candidates], [one.step.writes for one in candidates]
    types = {*writes, *(dtype for own in reads for dtype in own)}
    origins = {dtype: origins_of(network, device, dtype) for dtype in types}
    ending: dict[int, list[int]] = {}
    for o, steps in enumerate(does):
        ending.setdefault(steps[-1], []).append(o)
    after: list[dict[int, int]] = [{} for _ in candidates]
    release, tail = ([0] * len(candidates) for _ in range(2))
    for o, one in enumerate(candidates):
        for name, dtype in zip(one.step.inputs, reads[o], strict=True):
            for before, (time, theirs) in origins[dtype].get(name, {}).items():
                if before < 0:
                    release[o] = max(release[o], time)
                for other in ending.get(before, []):
                    if not set(does[other]) & set(does[o]):
                        converts = theirs and writes[other] != dtype
                        step = Step("", Convert.to(dtype), (), candidates[other].step.output)
                        wait = time + (ticks(moved_us(network, step, device, dtype)) if converts else 0)
                        after[o][other] = max(wait, after[o].get(other, 0))
        ends = (origins[writes[o]].get(name, {}).get(does[o][-1], (0, True)) for name in network.outputs)
        tail[o] = max((time for time, _ in ends), default=0)
    return Problem(
        kinds=tuple(keys.index((one.key, one.copy)) for one in candidates),
        choices=tuple(tuple(choice_of(p, launches) for p in fronts.points[key]) for key, _ in keys),
        does=does,
        after=tuple(after),
        limits=launches.limits,
        between=0,
        release=tuple(release),
        tail=tuple(tail),
        launches=launches.most,
    )
