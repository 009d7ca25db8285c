"""Weights of few bits as they are stored and moved: bytes, which programs unpack on the core.

Along the depth of a product, every `block` codes share a scale and a zero: a weight is (code - zero) * scale. The bytes
of a block are its scale, its zero if it has one, and its codes. A byte has two codes of four bits; the low one is of
the block's first half.

A scale has a sign, 5 bits of exponent from 2**-26 on and 10 bits of mantissa, as a half-precision number has. Two more
bytes hold the rest of a float32's mantissa.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen

Array = NDArray[np.generic]
LEAST_BLOCK, MOST_BLOCK = 16, 128
"""Codes of a block: an unpacking loop runs over one. Larger blocks are cut, and their scales repeated."""
LEAST_EXPONENT = 101 << 23
"""Bits of float32's 2**-26."""


class Packed(Frozen):
    """The format of packed weights.

    Attributes:
        bits: of a code, 4 or 8.
        block: codes with one scale.
        scale_bytes: 2, or 4 for scales of float32.
        zeros: blocks have zeros.
    """

    bits: int
    block: int
    scale_bytes: int
    zeros: bool

    @property
    def head(self) -> int:
        """Bytes before the codes of a block."""
        return self.scale_bytes + self.zeros

    @property
    def bytes(self) -> int:
        """Bytes of a block."""
        return self.head + self.block * self.bits // 8

    def loop(self, place: Callable[[object], str], before: str, value: Callable[[str, str], str]) -> list[str]:
        """Return the lines that go through a block's bytes.

        Args:
            place: from the number of a byte in the block to the text that reads it.
            before: a line before the loop over its codes.
            value: from a weight before scaling and its number in the block to a line that uses it.
        """
        rest = f" + ({place(2)} + 128) * 32 + {place(3)}" if self.scale_bytes > 2 else ""
        each = f"""\
    weight: float32 = code - zero
    {value("weight", "k")}"""
        if self.bits == 4:
            each = f"""\
    high: int32 = code // 16
    first: float32 = code - high * 16 - 8 - zero
    {value("first", "k")}
    second: float32 = high - zero
    {value("second", f"k + {self.block // 2}")}"""
        return f"""\
size: int32 = {place(0)} * 256 + {place(1)} + 128
sign: float32 = 1.0
if size < 0:
    size = 0 - size
    sign = -1.0
bits: int32 = size * 8192 + {LEAST_EXPONENT}{rest}
scale: float32 = bits.bitcast()
scale = scale * sign
zero: int32 = {place(self.scale_bytes) if self.zeros else 0}
{before}
for k in range({self.bytes - self.head}):
    code: int32 = {place(f"{self.head} + k")}
{each}""".splitlines()

    def numpy_lines(self, name: str) -> list[str]:
        """Return the lines that compute `weights` in NumPy.

        Args:
            name: of a matrix with a column for each column of the weights.
        """
        rest = " + (blocks[:, 2] + 128) * 32 + blocks[:, 3]" if self.scale_bytes > 2 else ""
        each = "np.concatenate([codes % 16 - 8, codes // 16], axis=1)" if self.bits == 4 else "codes"
        return f"""\
blocks = {name}.astype(np.int32).reshape(-1, {self.bytes}, {name}.shape[1])
size, codes = blocks[:, 0] * 256 + blocks[:, 1] + 128, blocks[:, {self.head}:]
scale = (np.abs(size) * 8192 + {LEAST_EXPONENT}{rest}).view(np.float32)
codes = {each} - {f"blocks[:, {self.scale_bytes}][:, None]" if self.zeros else 0}
weights = codes.astype(np.float32) * np.where(size < 0, -scale, scale)[:, None]
weights = weights.reshape(-1, {name}.shape[1])""".splitlines()


class Weights(Frozen, eq=False):
    """Known weights of few bits, [depth, columns].

    Attributes:
        codes: whole numbers that fit the format's bits, as signed ones. scales, zeros: of each.
    """

    packed: Packed
    codes: NDArray[np.int32]
    scales: NDArray[np.float32]
    zeros: NDArray[np.int32]

    @property
    def floats(self) -> NDArray[np.float32]:
        return (self.codes - self.zeros) * self.scales

    def in_bytes(self, depth: int, columns: int) -> NDArray[np.int8]:
        """Return the bytes, [blocks * bytes, columns], of a padded matrix."""
        own, (height, width) = self.packed, self.codes.shape
        pads = (0, depth - height), (0, columns - width)
        zeros = np.pad(self.zeros, pads)
        codes = np.pad(self.codes, pads)
        scales = np.pad(self.scales, pads, constant_values=1)[:: own.block]
        numbers = scales.view(np.int32)
        size = (numbers & 0x7FFFFFFF) - LEAST_EXPONENT
        high = np.where(numbers < 0, -(size >> 13), size >> 13)
        head = [high >> 8, (high & 255) - 128, (size >> 5 & 255) - 128, size & 31][: own.scale_bytes]
        head += [zeros[:: own.block]] * own.zeros
        blocks = codes.reshape(-1, own.block, columns)
        if own.bits == 4:
            first, second = np.split(blocks, 2, axis=1)
            blocks = second * 16 + first + 8
        return np.concatenate([np.stack(head, axis=1), blocks], axis=1).reshape(-1, columns).astype(np.int8)


BLOCKS = {8: 128, 4: 32}
"""Number of weights that share a scale, by the bits that they are rounded to."""


def rounded(array: Array, bits: int, depth: int) -> Weights | None:
    """Round known weights, [depth, columns], to multiples of a scale for each block; None if there is no format for it.

    Args:
        depth: after padding, a whole number of blocks.
    """
    block = math.gcd(depth, BLOCKS[bits])
    floats = np.pad(array.astype(np.float32), ((0, depth - len(array)), (0, 0)))
    largest = np.abs(floats).reshape(-1, block, floats.shape[1]).max(axis=1) / ((1 << bits - 1) - 1)
    scales = np.repeat(largest.astype(np.float16).astype(np.float32), block, axis=0)
    scales[scales == 0] = 1
    codes = np.rint(floats / scales)
    return weights_of(codes, scales, np.zeros_like(codes))


def weights_of(codes: Array, scale: Array, zero: Array) -> Weights | None:
    """Return weights in the narrowest format that loses nothing; None if there is none.

    Args:
        codes, scale, zero: of each weight, [depth, columns].
    """
    whole, zeros, scales = codes.astype(np.int32), zero.astype(np.int32), scale.astype(np.float32)
    edges = [np.flatnonzero((one[1:] != one[:-1]).any(axis=1)) + 1 for one in (scales, zeros)]
    whole_block = int(np.gcd.reduce(np.concatenate(edges)))  # 0 if all have the same
    sizes = [own for own in range(LEAST_BLOCK, MOST_BLOCK + 1, 2) if whole_block % own == 0]
    block = min(sizes, key=lambda own: (-(-len(whole) // own) * own, -own), default=0)
    whole, scales = np.where(scales == 0, zeros, whole), np.where(scales == 0, np.float32(1), scales)
    size = (scales.view(np.int32) & 0x7FFFFFFF) - LEAST_EXPONENT
    if not block or size.min() < 1 << 13 or size.max() >= 32 << 23:
        return None
    low, high = min(whole.min(), zeros.min()), max(whole.max(), zeros.max())
    alike = zeros.flat[:1] if (zeros == zeros.flat[0]).all() else ()
    for bits in (4, 8):
        span = 1 << bits - 1
        for shift in (*alike, 0, span):  # signed codes, without a zero if all have the same
            if low >= shift - span and high < shift + span:
                packed = Packed(bits, block, 4 if (size & 8191).any() else 2, bool((zeros != shift).any()))
                return Weights(packed, whole - shift, scales, zeros - shift)
    return None
