"""What a DMA channel can rearrange on the way: a walk as the loops of one buffer descriptor."""

from __future__ import annotations

from dataclasses import dataclass

from allo_dse.device.model import Descriptor

from .access import WORD_BYTES, fit_loops
from .affine import Loop, Walk


@dataclass(frozen=True)
class DescriptorWalk:
    """A walk in a descriptor's terms.

    Attributes:
        dims: (extent, step) of its loops in 32-bit words, innermost first.
        offset: of the first word.
    """

    dims: tuple[tuple[int, int], ...]
    offset: int


def descriptor_walk(walk: Walk, bits: int, descriptor: Descriptor) -> DescriptorWalk | str:
    """The walk as a descriptor for elements of `bits`, or why it cannot be one.

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
    steps = [step * size for _, step in outer] + [walk.offset * size]
    if run % WORD_BYTES or any(step % WORD_BYTES for step in steps):
        return f"it takes {_smallest(run, steps)}-byte pieces, and DMA moves {WORD_BYTES}-byte words"
    loops = [(run // WORD_BYTES, WORD_BYTES), *((count, step * size) for count, step in reversed(outer))]
    pattern = fit_loops(loops, descriptor.model_copy(update={"iteration_bits": 0}))
    if pattern.host_loops:
        return f"it needs more than the {descriptor.dims} loops of a descriptor, or longer ones"
    return DescriptorWalk(pattern.dims, walk.offset * size // WORD_BYTES)


def _smallest(run: int, steps: list[int]) -> int:
    """The bytes that stay together."""
    result = run
    for step in steps:
        while step % result:
            result //= 2
    return max(1, result)
