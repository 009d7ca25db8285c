"""Content of an FPGA's device file as immutable models; units are part of the names.

A latency is counted as HLS reports do: *extra* cycles, so that 0 is combinational and a loop-carried sum through an
adder of latency 6 can start every 7 cycles. Every operator accepts new operands in every cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from allo_dse.common.records import Frozen

from .model import Bits, Count, Model, NotNegative, Positive, Share, Size

RESOURCES = ("lut", "ff", "dsp", "bram18", "uram")

AXI_LEAST_BITS = 32
"""Least width of an AXI port; the tool has wider ones for wider words, and widens ports up to that of the memory."""
# Reports round periods to 0.01 ns: 3.33 ns is 300 MHz.
CLOCK_TOLERANCE = 1.01


class Resources(Frozen):
    """Amounts of resources that something takes."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram18: int = 0
    uram: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources.weighted(((self, 1), (other, 1)))

    def __mul__(self, count: int) -> Resources:
        return Resources.weighted(((self, count),))

    @staticmethod
    def total(parts: Iterable[Resources]) -> Resources:
        """The sum of any number of amounts."""
        return Resources.weighted((part, 1) for part in parts)

    @staticmethod
    def weighted(parts: Iterable[tuple[Resources, int]]) -> Resources:
        """The sum of any number of amounts, each so many times."""
        lut = ff = dsp = bram18 = uram = 0
        for part, count in parts:
            lut, ff, dsp = lut + part.lut * count, ff + part.ff * count, dsp + part.dsp * count
            bram18, uram = bram18 + part.bram18 * count, uram + part.uram * count
        return Resources(lut, ff, dsp, bram18, uram)


class Amounts(Model):
    """Amounts of each resource that an FPGA has, or that something uses, as in a device file."""

    lut: Size = 0
    ff: Size = 0
    dsp: Size = 0
    bram18: Size = 0
    uram: Size = 0

    @property
    def resources(self) -> Resources:
        return Resources(self.lut, self.ff, self.dsp, self.bram18, self.uram)


class Operator(Amounts):
    """One implementation of an arithmetic operator at one clock.

    Attributes:
        mhz: the clock it was characterised at; at lower clocks it is no slower.
        latency: extra cycles until its result is there.
        stage_share: part of a cycle's usable time that its first and last stage take; what is left can hold a load, a
            store or a comparison in the same cycle.
    """

    mhz: Positive
    latency: Size
    stage_share: Share = 0.9


OperatorRows = Annotated[tuple[Operator, ...], Field(min_length=1)]


def at_clock(rows: Iterable[Operator], mhz: float) -> Operator:
    """The row characterised at the lowest clock that is not below `mhz`.

    Beyond the fastest row its latency is stretched in proportion: the same logic needs as many nanoseconds.
    """
    ordered = sorted(rows, key=lambda row: row.mhz)
    for row in ordered:
        if row.mhz * CLOCK_TOLERANCE >= mhz:
            return row
    fastest = ordered[-1]
    return fastest.model_copy(update={"latency": math.ceil(fastest.latency * mhz / fastest.mhz)})


class Clock(Model):
    """The clock that designs are scheduled for.

    Attributes:
        uncertainty: share of the period that scheduling must leave unused.
    """

    mhz: Annotated[float, Field(gt=0, le=2000, allow_inf_nan=False)]
    uncertainty: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

    @property
    def period_ns(self) -> float:
        return 1e3 / self.mhz

    @property
    def usable_ns(self) -> float:
        """Time for the combinational logic of one cycle."""
        return self.period_ns * (1 - self.uncertainty)


class IntegerRules(Model):
    """Cost rules of integer operators.

    Attributes:
        dsp_from_bits: a multiplication with an operand of at least this many bits uses DSPs.
        dsp_ports: operand widths of one DSP's multiplier, signed.
        dsp_latency: of a DSP with all its registers: of a product that takes longer than a cycle, or with a sum.
        registers_multiply_adds: whether products with a sum take these also where both fit a cycle.
        multiply_ns: delay of a product in fabric or one DSP. wide_multiply_ns: of 32 x 32 bits in several; with each
            further bit `wide_multiply_ns_per_bit`. wide_multiply_lut: LUTs beside these.
        wide_from_bits, wide_latency: products of two operands from this width on have this latency at least.
        lut_per_product_bit: LUTs of a multiplication in fabric, per bit of one operand times the other.
        add_ns, add_ns_per_bit: delay of an addition or comparison.
        divide_extra_latency: latency of a division or remainder beyond a cycle per bit.
    """

    dsp_from_bits: Bits
    dsp_ports: tuple[Bits, Bits]
    dsp_latency: Size
    registers_multiply_adds: bool
    wide_from_bits: Count
    wide_latency: Size
    lut_per_product_bit: Positive
    add_ns: NotNegative
    add_ns_per_bit: NotNegative
    multiply_ns: Positive
    wide_multiply_ns: Positive
    wide_multiply_lut: Size
    wide_multiply_ns_per_bit: NotNegative
    divide_extra_latency: Size
    divide_lut_per_bit_squared: Positive


class FifoRules(Model):
    """Cost rules of streams, by their size in bits.

    Attributes:
        register_depth: FIFOs up to this depth are registers: `register_ff_per_bit` of them for each bit of width.
        shift_bits, lutram_bits: up to this many bits in all a shift register, or LUTRAM; block RAM above.
        shift_ff, lutram_ff: their flip-flops.
        lut: control logic of one FIFO; `lut_per_bit` of width for the storage that LUTs make.
    """

    register_depth: Count
    register_ff_per_bit: Size
    register_ff: Size
    shift_bits: Count
    shift_ff: Size
    lutram_bits: Count
    lutram_ff: Size
    lut: Size
    lut_per_bit: NotNegative


class ArrayRules(Model):
    """Cost rules of arrays.

    Attributes:
        lutram_bits: a bank of at most this many bits is LUTRAM.
        lut_per_bit: LUTs of LUTRAM, per bit of a word, and of 64 words.
        ports: accesses per cycle and bank.
        bram18_shapes: (words, bits) that one BRAM18 can be used as.
        bram_ns, deep_ns, uram_ns, lutram_ns: delays of a load or store in block RAM, in block RAM that is deeper than a
            URAM and wider than 32 bits, in URAM, and in LUTRAM.
        uram_words, uram_bits: shape of one URAM.
        uram_from_words: the tool puts arrays of at least this many words that fit its depth into URAM; 0 if none.
    """

    lutram_bits: Count
    lut_per_bit: NotNegative
    ports: Count
    bram18_shapes: tuple[tuple[Count, Count], ...]
    bram_ns: NotNegative
    deep_ns: NotNegative
    uram_ns: NotNegative
    lutram_ns: NotNegative
    uram_words: Count
    uram_bits: Count
    uram_from_words: Size

    def bram18(self, words: int, bits: int) -> int:
        """BRAM18s of one bank, in the cheapest of the shapes."""
        return min(math.ceil(words / w) * math.ceil(bits / b) for w, b in self.bram18_shapes)


class HlsRules(Model):
    """Decisions that the HLS tool makes by itself, and costs of its control logic.

    Attributes:
        pipeline_loops: the tool's threshold of pipelining without directives: a loop is pipelined and all loops inside
            it are unrolled if those have at most this many rounds together; 0 if no loop is pipelined by itself.
        flattens_imperfect: whether loops are flattened that have operations around the loop inside them.
        overlaps_loops: whether pipelined loops that do not depend on each other run at once.
        drains_memories: whether a round that updates a memory over several cycles ends before the next one begins.
        loop_extra: cycles of a pipelined loop beyond (trips - 1) * II + depth.
        adder_lut: LUTs of an adder or a comparison beyond those of its bits.
        mux_lut_per_input: LUTs of an n:1 multiplexer per input, as reports state them for any width.
        delay_ff, delay_lut: of a shift register that delays a condition or an address over rounds of a pipeline, as
            reports state them for any width.
    """

    pipeline_loops: Size
    flattens_imperfect: bool
    overlaps_loops: bool
    drains_memories: bool
    loop_extra: Size
    adder_lut: Size
    mux_lut_per_input: NotNegative
    delay_ff: Size = 0
    delay_lut: Size = 0


class ByWidth(Model):
    """Logic that grows with the width of an AXI port.

    Attributes:
        ff, lut: at 32 bits. ff_per_bit, lut_per_bit: with each further bit.
    """

    ff: Size
    lut: Size
    ff_per_bit: NotNegative
    lut_per_bit: NotNegative

    def resources(self, bits: int) -> Resources:
        """Return the logic at a width."""
        further = max(0, bits - AXI_LEAST_BITS)
        return Resources(
            ff=self.ff + round(self.ff_per_bit * further), lut=self.lut + round(self.lut_per_bit * further)
        )


class Adapter(ByWidth):
    """The adapter of an AXI port.

    Attributes:
        buffer_bits: width that a BRAM18 of its buffers has; each stores a word of the port and two more bits.
        lutram_bits: widest port whose buffers are LUTRAM.
        buffers_unused: whether it has a read and a write buffer whatever it is used for; otherwise only the read buffer
            of a port that is read is block RAM.
    """

    buffer_bits: Count
    lutram_bits: Size
    buffers_unused: bool

    def of(self, bits: int, *, reads: bool) -> Resources:
        """Return the resources of a port of this width."""
        buffers = 2 if self.buffers_unused else int(reads)
        blocks = 0 if bits <= self.lutram_bits else buffers * math.ceil((bits + 2) / self.buffer_bits)
        return self.resources(bits) + Resources(bram18=blocks)


class External(Model):
    """Memory outside the chip, and what a tensor that lies in it costs.

    Attributes:
        ports: AXI ports (HBM channels, DDR controllers or PS ports) that tensors can have.
        port_gb_s: bandwidth of one.
        bank: what the linker calls the memory of a port, `{}` for the port's number: HBM[{}], DDR[{}], HP{}.
        latency_cycles: from a burst's request to its first word.
        port_bits: width of one port.
        load, store: logic of the task that copies a tensor in, or out. adapter: of one AXI port.
        control: logic of the register file that the host starts the kernel with.
    """

    ports: Count
    port_gb_s: Positive
    bank: str
    latency_cycles: Size
    port_bits: Count
    load: ByWidth
    store: ByWidth
    adapter: Adapter
    control: Amounts

    def port_of(self, tensor: int) -> int:
        """The port of the design's n-th tensor in DRAM: its own, or in turn where there are more tensors than ports."""
        return tensor % self.ports

    def bank_of(self, tensor: int) -> str:
        """The memory of the design's n-th tensor in DRAM, for the linker."""
        return self.bank.replace("{}", str(self.port_of(tensor)))


class Chip(Amounts):
    """Resources of the whole chip; designs get these less the shell's part."""

    @model_validator(mode="after")
    def _has_logic(self) -> Chip:
        for resource in ("lut", "ff", "dsp", "bram18"):
            if not getattr(self, resource):
                raise ValueError(f"{resource} must be positive")
        return self
