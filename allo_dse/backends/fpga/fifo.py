"""Streams as FIFOs."""

from __future__ import annotations

import math

from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources


def fifo_resources(device: FpgaDevice, bits: int, depth: int) -> Resources:
    """What one FIFO of `depth` elements of `bits` takes physically."""
    rules, size = device.fifo, bits * depth
    storage = math.ceil(rules.lut_per_bit * bits)
    if depth <= rules.register_depth:
        return Resources(ff=rules.register_ff_per_bit * bits + rules.register_ff, lut=rules.lut)
    if size <= rules.shift_bits:
        return Resources(ff=rules.shift_ff, lut=rules.lut + storage)
    if size <= rules.lutram_bits:
        return Resources(ff=rules.lutram_ff, lut=rules.lut + storage * math.ceil(depth / 64))
    return Resources(ff=rules.lutram_ff, lut=rules.lut, bram18=device.arrays.bram18(depth, bits))


def reported_bram18(device: FpgaDevice, bits: int, depth: int) -> int:
    """The BRAM18s that the HLS report states for it: enough for its width, whatever its depth."""
    return math.ceil(bits / device.arrays.bram18_shapes[0][1]) if bits * depth > device.fifo.lutram_bits else 0
