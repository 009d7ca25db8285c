"""Decisions of the HLS tool: which loops it pipelines, unrolls, flattens and runs at once, by its version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.simplify import product_by, signed_digits
from allo_dse.backends.fpga.cost.task_cost import TaskCost, task_cost
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.errors import DeviceError
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.constants import Computed
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from benchmarks import fpga_truth_programs as published

from . import programs

U55C = FpgaDevice.load("u55c").with_options(clock_mhz=200)
OLD = FpgaDevice.load("z7045").with_options(clock_mhz=75, uncertainty=0.125, tool="2015.3")


def cost(region: Any, device: FpgaDevice = U55C, *schedule: Directive) -> TaskCost:
    program = dse.load_program(region)
    return task_cost(program, program.kernels[0].classes[0], device, schedule)


def loops(found: TaskCost) -> list[tuple[tuple[str, ...], int, int]]:
    return [(one.names, one.trips, one.ii) for one in found.loops]


def test_perfect_nests_are_flattened_and_others_unrolled() -> None:
    """The inner loop has 18 rounds, or 30 with a sum in a register."""
    flat = [(("i", "j", "k"), 5832, 4), (("i2", "j2", "k2"), 5832, 4)]
    assert loops(cost(published.heat_3d())) == flat
    assert loops(cost(published.doitgen()))[0] == (("p",), 30, 15)
    assert cost(published.heat_3d()).cycles == pytest.approx(1_869_601, rel=0.001)  # of the circuit


def test_loads_that_rounds_have_in_common_come_first() -> None:
    """30 elements of a row through two ports: 15 cycles, and one until the last is there; each loop ends in a cycle."""
    rows = cost(published.doitgen())
    inner = sum(one.cycles for one in rows.loops)
    assert rows.cycles == 500 * (inner + 16) + 25 + 1


def test_loops_that_share_nothing_run_at_once_and_share_no_operators() -> None:
    """The two products of `gesummv` have 64 multiply-adds of 8 DSPs each; those of `mvt` read one memory."""
    assert cost(published.gesummv()).logic.dsp == 2 * 64 * (2 * 3 + 2)
    assert cost(published.mvt()).logic.dsp == 2 * (2 + 3)
    before = cost(published.gesummv(), U55C.with_options(tool="2020.1"))
    assert before.cycles > cost(published.gesummv()).cycles
    assert before.logic.dsp == 64 * (2 * 3 + 2)


def test_an_old_tool_pipelines_what_a_directive_names() -> None:
    assert loops(cost(published.product_3x3(), OLD)) == []
    pipelined = cost(published.product_3x3(), OLD, Directive("pipeline", "body", "j", {"initiation_interval": 1}))
    assert loops(pipelined) == [(("i", "j"), 9, 2)]
    assert pipelined.cycles == 21
    assert pipelined.logic.dsp == 3


def test_rounds_forward_the_last_value_and_bounds_keep_accesses_apart() -> None:
    assert loops(cost(published.floyd_warshall())) == [(("k", "i", "j"), 216_000, 2)]
    assert loops(cost(published.lu()))[0][2] == 5


def test_a_reset_sum_is_flattened() -> None:
    """The reset takes time before the adder; the stencil of integers has 9 products in 27 DSPs."""
    assert loops(cost(published.covariance()))[0] == (("j", "i"), 8000, 5)
    assert cost(published.stencil_2d()).logic.dsp == 27


def test_versions_change_a_device() -> None:
    assert U55C.with_options(tool="2019.2").hls.pipeline_loops == 0
    assert U55C.with_options(tool="2015.3").with_options(tool="2022.2") == U55C
    assert U55C.with_options(tool="2030.1").external.adapter == U55C.with_options(tool="2025.2").external.adapter
    with pytest.raises(DeviceError, match="no version"):
        U55C.with_options(tool="newest")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(-(1 << 20), 1 << 20))
def test_signed_digits_are_fewer_than_bits(number: int) -> None:
    """Half of the bits at most; a power of two has one, and a shift changes none."""
    digits = signed_digits(number)
    assert 1 <= digits <= max(1, (abs(number).bit_length() + 2) // 2)
    assert signed_digits(4 * number) == digits
    assert (product_by([number]) == "wiring") == (number == 0 or abs(number) & (abs(number) - 1) == 0)


PIPELINED = (
    Directive("pipeline", "k", "i", {"initiation_interval": 1}),
    *(Directive("partition", "k", "a", {"dim": dim, "factor": 0, "partition_type": "complete"}) for dim in (2, 3)),
)


def test_expressions_of_unrolled_loops_are_constants() -> None:
    """Powers of two are wires, others multiply by a constant; in a loop with rounds they are computed."""
    wires = cost(programs.filter_3x3("none"), U55C, *PIPELINED)
    assert wires.logic.dsp == 0
    assert cost(programs.filter_3x3("branches"), U55C, *PIPELINED).logic.dsp == 0
    assert cost(programs.filter_3x3("sums"), U55C).logic.dsp > 0
    for weights in ("conditions", "variable", "quotient", "divisors"):
        found = cost(programs.filter_3x3(weights), U55C, *PIPELINED)
        assert (found.logic.dsp, found.logic.lut, loops(found)) == (0, wires.logic.lut, loops(wires))
    large, data = (cost(programs.filter_3x3(weights), U55C, *PIPELINED).logic for weights in ("large", "data"))
    assert 0 < large.dsp <= data.dsp
    assert large.lut < data.lut
    rolled = Directive("pipeline", "k", "x", {"initiation_interval": 1})
    assert cost(programs.filter_3x3("conditions"), U55C, rolled).logic.dsp > 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from([8, 32]), st.data())
def test_constants_compute_as_operations_do(bits: int, data: st.DataObject) -> None:
    """Numbers wrap, signed quotients round towards zero; forms in place of variables change nothing."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    a, b = (data.draw(st.integers(low, high)) for _ in range(2))
    x, y = Linear.variable(1), Linear.variable(2)

    def value(name: str) -> int:
        whole = Computed(name, bits, (x, y))
        assert whole.variables == {1, 2}
        put_in = whole.put_in(1, Linear((), a)).put_in(2, Linear((), b))
        assert int(put_in.constant) == int(whole.value({1: a, 2: b}))
        return int(put_in.constant)

    assert value("arith.muli") == a * b
    assert value("arith.cmpi.ult") == (a % (1 << bits) < b % (1 << bits))
    assert value("arith.cmpi.sge") == (a >= b)
    assert value("arith.xori") == a ^ b
    if b:
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        assert value("arith.divsi") == quotient
        assert value("arith.remsi") == a - quotient * b
        assert value("arith.divui") == a % (1 << bits) // (b % (1 << bits))
    assert int(Computed("arith.extsi", bits, (Linear((), a + (1 << bits)),)).constant) == a


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.sampled_from([32, 64, 128, 256, 512, 1024]), st.sampled_from(["2020.2", "2021.1", "2022.2", "2025.2"]))
def test_adapters_grow_with_their_width(bits: int, tool: str) -> None:
    adapter = U55C.with_options(tool=tool).external.adapter
    read, write = adapter.of(bits, reads=True), adapter.of(bits, reads=False)
    wider = adapter.of(2 * bits, reads=True)
    assert (wider.lut, wider.ff) > (read.lut, read.ff)
    assert wider.bram18 >= read.bram18 >= write.bram18


def test_what_a_directive_cannot_do_is_said() -> None:
    program = dse.load_program(programs.triangle(16))
    asked = Directive("pipeline", "k", "i", {"initiation_interval": 1})
    fast = FpgaMapping(program.vmg, FpgaDevice.load("u280").with_options(clock_mhz=500), (asked,))
    said = fast.remarks
    assert any("k:i is not pipelined: the trip count of j" in one for one in said)
    assert any("500 MHz are extrapolated" in one for one in said)
    assert FpgaMapping(program.vmg, FpgaDevice.load("u280")).remarks == []


def test_remainders_by_powers_of_two_are_wires() -> None:
    known = {(operation, n): cost(programs.by_constant(operation, n)).logic for operation in "%*" for n in (8, 7)}
    assert known["%", 8] == known["*", 8]
    assert known["%", 7].lut > 2 * known["%", 8].lut


def test_deep_pipelines_keep_addresses_in_shift_registers() -> None:
    """The stencil has 9 rounds at work, of two loops: the end and the address of a store in each are delayed."""
    now, before = (cost(published.jacobi_1d(), U55C.with_options(tool=tool)).logic for tool in ("2022.2", "2015.3"))
    rules = U55C.hls
    assert (rules.delay_ff, rules.delay_lut) == (64, 32)
    plain = U55C.model_copy(update={"hls": rules.model_copy(update={"delay_ff": 0, "delay_lut": 0})})
    without = cost(published.jacobi_1d(), plain).logic
    assert now.lut - without.lut == 2 * (1 + 1) * 32
    assert 0 < now.ff - without.ff <= 2 * (1 + 1) * 64
    assert before.lut < now.lut


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("trisolv", [(13, 13)]),  # each round begins with the store of the one before
        ("floyd_warshall", [(2, 5)]),  # the last store is forwarded; counters of three loops take a cycle
        ("stencil_2d", [(5, 8)]),  # the last load comes after four cycles
        ("durbin", [(4, 12), (1, 12), (1, 2)]),  # a sum of 2.89 ns and a store of 0.71 ns share a cycle
    ],
)
def test_published_loops_have_the_reported_intervals_and_depths(name: str, reported: list[tuple[int, int]]) -> None:
    assert [(one.ii, one.depth) for one in cost(getattr(published, name)()).loops] == reported


@pytest.mark.parametrize(("words", "depth"), [(64, 12), (100, 13)])
def test_addresses_take_a_cycle_of_their_own_before_slow_memories(words: int, depth: int) -> None:
    """Two sums make `80 * k + i`; then 2.98 ns do not fit the cycle. Rows of 64 elements need none."""
    found = [one for one in cost(programs.column_squares(words)).loops if one.trips == 100]
    assert [(one.ii, one.depth) for one in found] == [(4, depth)]


def test_data_that_decides_an_address_comes_before_the_load() -> None:
    """A histogram: an address is loaded, then a count, which is stored in the fourth cycle at 300 MHz."""
    memory = Directive("place", "body", "count", {"memory": "bram"})
    found = cost(programs.histogram(), FpgaDevice.load("u280"), memory).loops[0]
    assert (found.ii, found.depth) == (2, 4)


def test_factors_from_tables_are_as_wide_as_these() -> None:
    """A product of 16 bits with numbers of 5 bits takes a DSP, not two."""
    assert cost(programs.scaled_by_table()).logic.dsp == 1
