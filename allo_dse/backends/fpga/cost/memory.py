"""Arrays on the chip: banks after partitioning, conflicts of accesses at a bank, and hardware."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, Ints, hashed_once
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.constants import Computed
from allo_dse.compiler.ir.nest import Access, Array
from allo_dse.compiler.program.tensors import StreamArray
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources

# Streams as FIFOs.


BRAM18_BITS = 18 * 1024


OUTSTANDING = 16
"""Requests that an AXI port has under way by default (UG1399, "pragma HLS interface")."""
BANKS = 2  # of a ping-pong buffer
WORD_BITS = 1024
"""Widest block, in bits, that moves as one word. Others move element by element, as no FIFO is that wide."""


def word_of(stream: StreamArray) -> tuple[int, int]:
    """Return the bits of a word of a stream's FIFO, and the words of a token."""
    size = math.prod(stream.block)
    return (size * stream.dtype.bits, 1) if size * stream.dtype.bits <= WORD_BITS else (stream.dtype.bits, size)


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


IntArray = NDArray[np.int64]
Unrolled: TypeAlias = Mapping[int, range]
"""Values of the variables of unrolled loops."""
Accesses: TypeAlias = Sequence[tuple[Access, Unrolled]]
"""Each with the unrolled loops around it."""

MOST_COPIES = 1 << 16  # copies of one access that are told apart
_LUT_PER_BANK = 12
WIDE_BITS = 32  # UltraRAM is for words of at least this width; wider ones are slow in deep block RAM


class Split(Frozen):
    """Partition of one dimension into banks."""

    kind: str
    factor: int


@hashed_once
@dataclass(frozen=True)
class Storage:
    """An array and its place.

    Attributes:
        splits: per dimension, None where it is whole.
        place: "auto", "lutram", "bram", "uram" or "register"; "rom" for elements that the bitstream has.
        buffers: 2 for one that nests which run at once hand on to each other.
        users: tasks that use it at once and share its ports.
        strides: of a tensor that the task accesses in DRAM, in elements; empty for arrays on the chip.
        fifo_depth: of one that is a FIFO between such nests, per bank; 0 for an array.
    """

    array: Array
    splits: tuple[Split | None, ...]
    place: str = "auto"
    buffers: int = 1
    fifo_depth: int = 0
    users: int = 1
    strides: Ints = ()

    def ports(self, device: FpgaDevice) -> int:
        """Return the accesses to a bank per cycle for each task that uses it; every reader of a table has its own."""
        if self.array.values:
            return MOST_COPIES
        return max(1, device.arrays.ports // self.users)

    @property
    def banks(self) -> int:
        return math.prod(split.factor for split in self.splits if split)

    @property
    def bank_words(self) -> int:
        pairs = zip(self.array.shape, self.splits, strict=True)
        return math.prod(math.ceil(n / split.factor) if split else n for n, split in pairs)

    @property
    def in_registers(self) -> bool:
        """True if every element is a register of its own, which any number of operations can use at once."""
        return self.place == "register" or (self.bank_words == 1 and not self.strides)

    def in_lutram(self, device: FpgaDevice, copies: int = 1) -> bool:
        """Return whether its banks are LUTRAM, if there is room for `copies` of the array in one memory."""
        small = self.bank_words * self.array.bits * copies <= device.arrays.lutram_bits
        return (small and self.place in ("auto", "onchip", "rom")) or self.place == "lutram"

    def in_uram(self, device: FpgaDevice) -> bool:
        """Return whether its banks are UltraRAM."""
        rules, auto = device.arrays, self.place in ("auto", "onchip") and not self.array.values
        fits = 0 < rules.uram_from_words <= self.bank_words <= rules.uram_words and self.array.bits >= WIDE_BITS
        return self.place == "uram" or (auto and fits and device.resources.uram > 0)

    def access_ns(self, device: FpgaDevice) -> float:
        """Return the delay of a load or store."""
        rules = device.arrays
        if self.in_lutram(device) or self.in_uram(device):
            return rules.lutram_ns if self.in_lutram(device) else rules.uram_ns
        deep = self.bank_words > rules.uram_words and self.array.bits > WIDE_BITS
        return rules.deep_ns if deep else rules.bram_ns

    def resources(self, device: FpgaDevice, copies: int = 1) -> Resources:
        """Return its resources; `copies` is 2 for a double buffer."""
        words, bits, banks = self.bank_words, self.array.bits, self.banks
        if self.fifo_depth:
            return fifo_resources(device, bits, self.fifo_depth) * banks
        copies *= self.buffers
        deep = 1
        if self.place == "rom":  # all copies are one table
            words, deep, copies = words * copies, copies, 1
        elif self.in_registers:
            total = bits * words * banks * copies
            return Resources(ff=total, lut=total // 8)
        rules = device.arrays
        if self.in_lutram(device, deep):
            lut = math.ceil(rules.lut_per_bit * bits * math.ceil(words / 64))
            return Resources(lut=(lut + 1) * banks * copies, ff=bits * banks * copies)
        if self.in_uram(device):
            blocks = math.ceil(words / rules.uram_words) * math.ceil(bits / rules.uram_bits)
            return Resources(uram=blocks * banks * copies, lut=_LUT_PER_BANK * banks)
        return Resources(bram18=rules.bram18(words, bits) * banks * copies, lut=_LUT_PER_BANK * banks)


class Memories(Frozen, dict=True):
    """Arrays whose elements are registers of their own, and those in memories.

    Attributes:
        banks: of those in memories the name, the delay of an access in ns, the shape, 0 along split dimensions, and the
            cycles that DRAM takes longer.
    """

    registers: frozenset[str]
    banks: tuple[tuple[str, float, Ints, int], ...]

    @staticmethod
    def of(storages: Mapping[str, Storage], device: FpgaDevice) -> Memories:
        banks = (
            (
                name,
                one.access_ns(device),
                tuple(0 if cut else n for n, cut in zip(one.array.shape, one.splits, strict=True)),
                device.external.latency_cycles if one.strides else 0,
            )
            for name, one in sorted(storages.items())
            if not one.in_registers
        )
        return Memories(frozenset(name for name, one in storages.items() if one.in_registers), tuple(banks))

    def __contains__(self, array: object) -> bool:
        return array in self.registers

    @cached_property
    def access_ns(self) -> Mapping[str, float]:
        """Delays of a load or store."""
        return defaultdict(float, ((name, ns) for name, ns, *_ in self.banks))

    @cached_property
    def shapes(self) -> Mapping[str, Ints]:
        """Shapes without split dimensions."""
        return {name: shape for name, _, shape, _ in self.banks}

    @cached_property
    def latency(self) -> Mapping[str, int]:
        """Cycles of DRAM, to read as to write."""
        return defaultdict(int, ((name, cycles) for name, *_, cycles in self.banks))


def busiest_bank(storage: Storage, accesses: Accesses) -> int:
    """Most accesses that one bank gets in one round of a pipelined loop.

    Args:
        accesses: loads of one address are one access. Accesses whose distance is not constant are taken to meet, those
            whose bank is not known to be in the same one.
    """
    if storage.in_registers:
        return 0
    groups: dict[tuple[object, bool, int], list[IntArray]] = defaultdict(list)
    alone = 0
    for number, (access, unrolled) in enumerate(accesses):
        parts = [split(form, unrolled) for form in access.index]
        if not all(part or whole is None for part, whole in zip(parts, storage.splits, strict=True)):
            alone += copies_of(unrolled)
            continue
        moving, fixed = zip(*(part or (Linear(()), None) for part in parts), strict=True)
        addresses = addresses_of(moving, unrolled)
        if all(parts):
            groups[fixed, access.write, -1].append(addresses)
        else:  # each copy may be at another one
            groups[fixed, True, number].append(np.repeat(addresses, copies_of(unrolled) // len(addresses), axis=0))
    return alone + sum(_most_in_one_bank(storage, np.concatenate(g), once=not key[1]) for key, g in groups.items())


def split(form: Linear | None, unrolled: Unrolled) -> tuple[Linear, Linear] | None:
    """Split an index into the part that differs between the copies of unrolled loops, and the part that they share.

    None if that is unknown: the index has no form, or a quotient (or minimum, ...) depends on both.
    """
    if form is None:
        return None
    inside = [part for part, _ in form.derived if part.variables <= unrolled.keys()]
    outside = [part for part, _ in form.derived if not part.variables & unrolled.keys()]
    if len(inside) + len(outside) < len(form.derived):
        return None
    moving, fixed = (
        Linear(
            tuple((v, f) for v, f in form.terms if (v in unrolled) is moves),
            form.constant if moves else 0,
            tuple((part, f) for part, f in form.derived if (part in inside) is moves),
        )
        for moves in (True, False)
    )
    return moving, fixed


def copies_of(unrolled: Unrolled) -> int:
    """Return the number of copies that unrolling makes."""
    return math.prod(map(len, unrolled.values()))


def addresses_of(forms: Sequence[Linear | Computed], unrolled: Unrolled) -> IntArray:
    """Per copy of an access its index along each dimension: (copies, dimensions)."""
    spans = {v: unrolled[v] for form in forms for v in form.variables}
    if not spans:
        return np.array([[form.constant for form in forms]], np.int64)
    if math.prod(map(len, spans.values())) > MOST_COPIES:
        first = next(iter(spans))
        spans = {v: span if v == first else span[:1] for v, span in spans.items()}
    grid = np.meshgrid(*(np.asarray(span, np.int64) for span in spans.values()), indexing="ij")
    values: Any = {v: axis.ravel() for v, axis in zip(spans, grid, strict=True)}
    table = np.empty((math.prod(map(len, spans.values())), len(forms)), np.int64)
    for column, form in enumerate(forms):
        along: Any = form.value(values)
        table[:, column] = along
    return table


def _most_in_one_bank(storage: Storage, addresses: IntArray, *, once: bool) -> int:
    """Most addresses in one bank; equal ones count `once`, as loads do."""
    pairs = list(zip(storage.array.shape, storage.splits, strict=True))
    flat = np.zeros(len(addresses), np.int64)
    bank = np.zeros(len(addresses), np.int64)
    for column, (extent, split) in enumerate(pairs):
        index = addresses[:, column] - min(0, int(addresses[:, column].min()))
        flat = flat * (int(index.max()) + 1) + index
        if split:
            width = math.ceil(extent / split.factor)
            bank = bank * split.factor + (index // width if split.kind == "block" else index) % split.factor
    if once:
        bank = bank[np.unique(flat, return_index=True)[1]]
    return int(np.unique(bank, return_counts=True)[1].max())
