"""Streams as FIFOs."""

from __future__ import annotations

import math

from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources

BRAM18_BITS = 18 * 1024


def fifo_resources(device: FpgaDevice, bits: int, depth: int) -> Resources:
    """Return the physical resources of one FIFO of `depth` elements of `bits` bits."""
    rules, size = device.fifo, bits * depth
    storage = math.ceil(rules.lut_per_bit * bits)
    if depth <= rules.register_depth:
        return Resources(ff=rules.register_ff_per_bit * bits + rules.register_ff, lut=rules.lut)
    if size <= rules.shift_bits:
        return Resources(ff=rules.shift_ff, lut=rules.lut + storage)
    if size <= rules.lutram_bits:
        return Resources(ff=rules.lutram_ff, lut=rules.lut + storage * math.ceil(depth / 64))
    return Resources(ff=rules.lutram_ff, lut=rules.lut, bram18=device.arrays.bram18(depth, bits))


def fifo_bits(device: FpgaDevice, bits: int, depth: int) -> int:
    """The memory that one FIFO of `depth` elements of `bits` is; see `fifo_steps`."""
    return fifo_steps(device, bits, depth)[-1][1]


def fifo_steps(device: FpgaDevice, bits: int, tokens: int) -> list[tuple[int, int]]:
    """The memories that a FIFO can be, as (depth when full, bits of memory); the last as deep as the tokens it holds.

    A BRAM18 counts with all its bits, however few of them are used.
    """
    rules = device.fifo
    plain = {rules.register_depth, rules.shift_bits // bits, *range(64, rules.lutram_bits // bits + 1, 64)}
    found = [(depth, depth * bits) for depth in sorted(plain) if depth >= rules.register_depth]
    blocks, shapes = 0, [(words, math.ceil(bits / width)) for words, width in device.arrays.bram18_shapes]
    while found[-1][0] < tokens:
        blocks = min((blocks // beside + 1) * beside for _, beside in shapes)
        depth = max([blocks // beside * words for words, beside in shapes])
        if depth > found[-1][0]:
            found.append((depth, blocks * BRAM18_BITS))
    used = [step for step in found if step[0] < tokens]
    return [*used, (max(tokens, 1), found[len(used)][1])]
