"""Operations as the HLS tool builds them: latency, delays within a cycle, resources."""

from __future__ import annotations

import math

from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.nest import WIRING, Op
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import HlsRules, Operator, Resources

FREE = frozenset(
    {WIRING, "arith.extsi", "arith.extui", "arith.trunci", "arith.bitcast", "arith.index_cast", "arith.negf",
     "affine.apply"}
)  # fmt: skip
_FLOAT = {
    "arith.addf": "add",
    "arith.subf": "add",
    "arith.mulf": "mul",
    "arith.divf": "div",
    "arith.remf": "div",
    "math.sqrt": "sqrt",
    "math.exp": "exp",
    "arith.cmpf": "compare",
    "arith.maximumf": "compare",
    "arith.minimumf": "compare",
    "arith.maxnumf": "compare",
    "arith.minnumf": "compare",
    "arith.sitofp": "from_int",
    "arith.uitofp": "from_int",
    "arith.fptosi": "from_int",
    "arith.fptoui": "from_int",
    "arith.extf": "extend",
    "arith.truncf": "truncate",
}
_SUMS = ("arith.addi", "arith.subi")
_COMPARISONS = ("arith.cmpi", "arith.max", "arith.min")
_DIVIDE = ("div", "rem")
LIGHT_NS = 0.3  # a multiplexer or a gate, one LUT deep
_WORD_BITS = 32  # width that delays of products in several DSPs are given for
_EXACT_MUL_BITS = 17  # what one DSP adds to a product that is built from several


def adder_lut(rules: HlsRules, bits: int) -> int:
    """Return the LUTs of a sum or a difference."""
    return bits + rules.adder_lut


def compare_lut(rules: HlsRules, bits: int) -> int:
    """Return the LUTs of a comparison: reports have 9 for 4 bits, 12 for 12, 20 for 32 and 29 for 64."""
    return bits // 3 + 1 + rules.adder_lut


class Unit(Frozen):
    """An operator.

    Attributes:
        kind: what it is called; operations of equal kind can share one.
        latency: extra cycles. delay_ns: of combinational logic, or of the first and the last stage.
        accumulate: latency from the addend of a multiply-add to its sum.
        is_shared: whether operations that start in different cycles of an interval share one.
    """

    kind: str
    latency: int
    delay_ns: float
    resources: Resources
    accumulate: int | None = None
    is_shared: bool = False


def float_name(op: Op) -> str | None:
    """The device file's name of a floating-point operator; None for other operations."""
    if op.name.startswith("math.") and op.name not in _FLOAT:
        return "exp"  # transcendental functions cost about as much as each other
    return _FLOAT.get(op.name)


def unit_of(op: Op, device: FpgaDevice, *, fabric: bool = False) -> Unit:
    """Return the hardware unit of an operation.

    Args:
        fabric: take the floating-point adder without DSPs, which has the shorter latency.
    """
    name = float_name(op)
    if name is not None:
        return _float_unit(name, op, device, fabric=fabric)
    if op.name == "arith.muli":
        return _multiplier(op, device)
    if any(word in op.name for word in _DIVIDE):
        bits = max(op.operand_bits, default=op.bits)
        lut = round(device.integer.divide_lut_per_bit_squared * bits * bits)
        return Unit(f"{op.name}.{bits}", bits + device.integer.divide_extra_latency, 0.0, Resources(lut=lut, ff=lut))
    if op.name in _SUMS or op.name.startswith(_COMPARISONS):
        bits = max(op.operand_bits, default=op.bits)
        delay = device.integer.add_ns + device.integer.add_ns_per_bit * bits
        chosen = op.name.startswith(_COMPARISONS[1:])  # the greater or smaller of two, after they are compared
        lut = adder_lut(device.hls, bits) if op.name in _SUMS else compare_lut(device.hls, bits) + bits * chosen
        return Unit(f"{op.name}.{bits}", 0, delay + LIGHT_NS * chosen, Resources(lut=lut))
    return Unit(f"{op.name}.{op.bits}", 0, LIGHT_NS, Resources(lut=math.ceil(op.bits / 2)))


def _float_unit(name: str, op: Op, device: FpgaDevice, *, fabric: bool) -> Unit:
    element = "f64" if op.element == "f64" else "f32"  # narrower types are computed as f32
    if name == "add" and fabric and device.operator(element, "add_fabric"):
        name = "add_fabric"
    row = device.operator(element, name) or device.operator("f32", name)
    if row is None:
        row = Operator(mhz=device.clock.mhz, latency=1)
    share = row.stage_share
    return Unit(f"{element}.{name}", row.latency, share * device.clock.usable_ns, row.resources, is_shared=True)


def _multiplier(op: Op, device: FpgaDevice) -> Unit:
    rules = device.integer
    wide, narrow = sorted(op.operand_bits, reverse=True) if len(op.operand_bits) == 2 else (op.bits, op.bits)
    kind = f"mul.{wide}x{narrow}"
    fits, usable = wide <= rules.dsp_ports[0] and narrow <= rules.dsp_ports[1], device.clock.usable_ns
    if wide < rules.dsp_from_bits:
        resources = Resources(lut=math.ceil(rules.lut_per_product_bit * wide * narrow))
    else:
        resources = Resources(dsp=_dsps(wide, narrow, op.bits, device), lut=0 if fits else rules.wide_multiply_lut)
    delay = rules.multiply_ns if fits else rules.wide_multiply_ns + rules.wide_multiply_ns_per_bit * (wide - _WORD_BITS)
    stages = math.ceil(delay / usable - 1e-9)
    if stages > 1 and resources.dsp and fits:
        stages = rules.dsp_latency + 1
    elif narrow >= rules.wide_from_bits:
        stages = max(stages, rules.wide_latency + 1)
    return Unit(kind, stages - 1, min(delay / stages, usable), resources)


def _dsps(wide: int, narrow: int, result: int, device: FpgaDevice) -> int:
    """DSPs of a product; products that are cut off need only those of their lower half."""
    ports = device.integer.dsp_ports
    if wide <= ports[0] and narrow <= ports[1]:
        return 1
    rows, columns = math.ceil(wide / _EXACT_MUL_BITS), math.ceil(narrow / _EXACT_MUL_BITS)
    if result <= wide and rows == columns:
        return rows * (rows + 1) // 2
    return rows * columns


def multiply_add(product: Op, device: FpgaDevice) -> Unit | None:
    """The DSP that multiplies and adds, with its registers or in one cycle; None when the operands do not fit it."""
    if len(product.operand_bits) != 2:
        return None
    wide, narrow = sorted(product.operand_bits, reverse=True)
    rules, usable = device.integer, device.clock.usable_ns
    if wide > rules.dsp_ports[0] or narrow > rules.dsp_ports[1]:
        return None
    both_ns = rules.multiply_ns + rules.add_ns + rules.add_ns_per_bit * (wide + narrow)
    if both_ns <= usable and not rules.registers_multiply_adds:
        return Unit(f"mac.{wide}x{narrow}", 0, both_ns, Resources(dsp=1))
    return Unit(f"mac.{wide}x{narrow}", rules.dsp_latency, 0.8 * usable, Resources(dsp=1), accumulate=0)
