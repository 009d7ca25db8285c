"""Spaces over programs that are made rather than compiled."""

from __future__ import annotations

from collections.abc import Callable

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Watch
from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.program import Program
from allo_dse.space.choice import Choice
from allo_dse.space.choices.parameters import CompiledPrograms, ParameterChoice
from allo_dse.space.choices.shared import OutputDepth
from allo_dse.space.design import Draft
from allo_dse.space.params import Assignment, ParameterSpace
from allo_dse.space.space import Space

NPU = NpuDevice.load("npu1_4col")


class MadePrograms(CompiledPrograms):
    """Programs from a function of the parameters."""

    def __init__(self, make: Callable[..., Program]) -> None:
        super().__init__(make)
        self._make = make
        self._made: dict[tuple[object, ...], Program] = {}

    def load(self, params: Assignment, watch: Watch | None = None) -> Program:
        key = tuple(params.values())
        if key not in self._made:
            self._made[key] = replace(self._make(**params), params=dict(params))
        return self._made[key]


def space_over(
    make: Callable[..., Program], *choices: Choice, device: Device = NPU, parameters: ParameterSpace | None = None
) -> Space:
    """The space of these choices over programs of a function of the parameters."""
    first = ParameterChoice(parameters or ParameterSpace({}), MadePrograms(make))
    return Space(Draft(device), [first, *choices])


def folded_space(make: Callable[..., Program], *choices: Choice, parameters: ParameterSpace | None = None) -> Space:
    """The same with output ports of one buffer or two, as studies of NPUs have it."""
    return space_over(make, *choices, OutputDepth(), parameters=parameters)
