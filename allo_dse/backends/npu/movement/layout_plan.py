"""Placement of each change of layout: in the descriptors of DMA channels on the way, or on the cores.

A tensor that tasks only read in another layout (`TaskClass.layouts`) can arrive in that layout: the memory tile's
channel reads the staged tile in the order of the result, if one descriptor can express it. A tile that tasks reorder
before they write it can leave as it was computed: the core's channel reads the output slot in the order of the tensor.
A view that moves nothing costs nothing. All other changes stay on the cores, as in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.compiler.program.tensors import LayoutStep, LayoutUse, TensorPort
from allo_dse.mapper.graph.ports import Direction
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.layouts import Arrangement, Loop, Walk

from .access import fit_loops
from .movement import WORD_BYTES, LayoutChoice, LayoutPlace, LayoutPlan

if TYPE_CHECKING:
    from allo_dse.device.device import NpuDevice
    from allo_dse.device.npu_model import Descriptor

# Tasks that share tiles: tensor, direction, layout, and tile shape.
_Key = tuple[str, Direction, tuple[int | None, ...], tuple[int, ...]]


def layouts_on(graph: ProgramGraph, device: NpuDevice) -> LayoutPlan:
    """Return the layout plan of a program on a device, which all of its folds share."""
    return graph.once(layout_plan, device)


def layout_plan(graph: ProgramGraph, device: NpuDevice) -> LayoutPlan:
    """The layouts of a program's tensors on a device; the same for all of its folds.

    Cores that share a flow receive the same words, so a tensor's tile is arranged on the way only if all task classes
    that use such tiles of it want the same. So do the tasks of one core, whose output slots have one descriptor each.
    """
    users: dict[_Key, list[tuple[TaskClass, TensorPort]]] = {}
    for cls in graph.program.task_classes:
        for port in cls.tensor_ports:
            for direction in port.directions:
                key = (port.tensor.name, direction, port.layout, port.tile_shape)
                users.setdefault(key, []).append((cls, port))
    return LayoutPlan(tuple(choice for key, found in users.items() for choice in _choices(key[1], found, device)))


def _choices(
    direction: Direction, users: Sequence[tuple[TaskClass, TensorPort]], device: NpuDevice
) -> list[LayoutChoice]:
    """Return one choice for each distinct layout that the users of one kind of tile want."""
    users_by_steps: dict[tuple[LayoutStep, ...], list[tuple[TaskClass, LayoutUse]]] = {}
    for cls, port in users:
        for use in cls.layouts:
            if (use.arg, use.direction) == (port.arg, direction):
                users_by_steps.setdefault(use.steps, []).append((cls, use))
    unanimous = len(users_by_steps) == 1 and sum(len(found) for found in users_by_steps.values()) == len(users)
    _, port = users[0]
    return [_choice(port, steps, found, device, unanimous=unanimous) for steps, found in users_by_steps.items()]


def _choice(
    port: TensorPort,
    steps: tuple[LayoutStep, ...],
    users: Sequence[tuple[TaskClass, LayoutUse]],
    device: NpuDevice,
    *,
    unanimous: bool,
) -> LayoutChoice:
    _, first = users[0]
    arrangement = arrange(first.shape, steps)
    arriving = first.direction == "in"
    tile = device.memory_tile if arriving else device.core
    place: LayoutPlace = "core"
    reason = ""
    dims: DescriptorLoops = ()
    if not arrangement.walks:
        place = "nowhere"
    elif not unanimous:
        reason = "other tasks use the tiles as they lie"
    elif len(arrangement.walks) > 1:
        reason = "it takes two passes"
    else:
        found = descriptor_walk(arrangement.walks[0], port.tensor.dtype.bits, tile.descriptor)
        if isinstance(found, str):
            reason = found
        else:
            place, dims = "memory tile" if arriving else "core DMA", found
    sites = tuple(((cls.kernel, cls.name), use.sites) for cls, use in users)
    return LayoutChoice(port.tensor.name, first.direction, port.tile_shape, describe(steps), place, reason, dims, sites)


def arrange(shape: tuple[int, ...], steps: Sequence[LayoutStep]) -> Arrangement:
    """A tile after some steps."""
    result = Arrangement.of(shape)
    for step in steps:
        result = result.transpose(step.argument) if step.kind == "transpose" else result.reshape(step.argument)
    return result


def describe(steps: Sequence[LayoutStep]) -> str:
    """Steps in words: "transposed", "transposed (0, 2, 1), viewed as 64x32"."""
    words = []
    for step in steps:
        if step.kind == "view":
            words.append(f"viewed as {'x'.join(map(str, step.argument))}")
        else:
            words.append("transposed" if step.argument == (1, 0) else f"transposed {step.argument}")
    return ", ".join(words)


DescriptorLoops = tuple[tuple[int, int], ...]
"""(extent, step) of a descriptor's loops in 32-bit words, innermost first."""


def descriptor_walk(walk: Walk, bits: int, descriptor: Descriptor) -> DescriptorLoops | str:
    """Return a walk as a descriptor's loops for elements of `bits`, or why it has none.

    DMA channels move whole 32-bit words, so elements that stay together and all steps must be multiples of that. The
    repeat count cannot serve as a further loop: it counts transfers, and a buffer is one.
    """
    if bits % 8:
        return f"elements of {bits} bits are not whole bytes"
    size = bits // 8
    *outer, inner = walk.loops or (Loop(1, 1),)
    run = size
    if inner.step == 1:
        run *= inner.extent
    else:
        outer.append(inner)
    steps = [step * size for _, step in outer]
    if run % WORD_BYTES or any(step % WORD_BYTES for step in steps):
        return f"it takes {_smallest(run, steps)}-byte pieces, and DMA moves {WORD_BYTES}-byte words"
    loops = [(run // WORD_BYTES, WORD_BYTES), *((count, step * size) for count, step in reversed(outer))]
    pattern = fit_loops(loops, descriptor.model_copy(update={"iteration_bits": 0}))
    if pattern.host_loops:
        return f"it needs more than the {descriptor.dims} loops of a descriptor, or longer ones"
    return pattern.dims


def _smallest(run: int, steps: list[int]) -> int:
    """The bytes that stay together."""
    result = run
    for step in steps:
        while step % result:
            result //= 2
    return result
