"""What schedules do to a loop: interval, depth, ports, recurrences, operators."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.loops.events import Pipe
from allo_dse.backends.fpga.cost.memory import BRAM18_BITS, Split, Storage, busiest_bank, fifo_resources, fifo_steps
from allo_dse.backends.fpga.cost.operators import Unit, unit_of
from allo_dse.backends.fpga.cost.plan import Planner
from allo_dse.backends.fpga.cost.task_cost import LoopCost, TaskCost, deciding_pids, task_cost
from allo_dse.common.errors import SimulationError
from allo_dse.compiler.ir.affine import Linear, holds
from allo_dse.compiler.ir.nest import Access, Array, Op, read_nest
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from tests.support.values import present

from . import programs

U280 = FpgaDevice.load("u280")


def directive(kind: str, target: str, **options: Any) -> Directive:
    scope, _, name = target.partition(":")
    return Directive(kind, scope, name, options)


def pipeline(target: str, interval: int = 1) -> Directive:
    return directive("pipeline", target, initiation_interval=interval)


def partition(target: str, dim: int, factor: int = 0, kind: str = "cyclic") -> Directive:
    return directive("partition", target, dim=dim, factor=factor, partition_type=kind)


def cost(program: Any, *schedule: Directive, device: FpgaDevice = U280) -> TaskCost:
    loaded = dse.load_program(program)
    return task_cost(loaded, loaded.kernels[0].classes[0], device, schedule)


def loop(program: Any, *schedule: Directive, device: FpgaDevice = U280) -> LoopCost:
    return cost(program, *schedule, device=device).loops[-1]


@pytest.mark.parametrize("operation", ["*", "/", "//", "%"])
def test_powers_of_two_take_no_multiplier_and_no_divider(operation: str) -> None:
    wires, other = (cost(programs.by_constant(operation, n)) for n in (8, 11))
    assert (wires.logic.dsp, wires.loops[-1].depth <= 3) == (0, True)
    assert other.logic.dsp > 0 or other.logic.lut > wires.logic.lut + 1000
    assert other.loops[-1].depth > wires.loops[-1].depth


@pytest.mark.parametrize(("mhz", "interval"), [(300, 4), (250, 3), (100, 2)])
def test_a_float_sum_has_the_interval_of_the_fabric_adder(mhz: int, interval: int) -> None:
    """The reports: II 4 with the fabric adder of latency 4 at 3.33 ns; its result is forwarded as it leaves it."""
    found = loop(programs.dot("f32"), pipeline("k:i"), device=U280.with_options(clock_mhz=mhz))
    assert (found.ii, found.limit) == (interval, "recurrence of acc")


def test_an_integer_sum_has_interval_one_in_one_dsp() -> None:
    found = cost(programs.dot("i8"), pipeline("k:i"))
    assert found.loops[-1].ii == 1
    assert found.logic.dsp == 1
    assert found.loops[-1].depth >= 1 + U280.integer.dsp_latency


def test_a_sum_over_rows_has_no_recurrence() -> None:
    found = loop(programs.rows(), pipeline("k:j"))
    assert (found.ii, found.trips) == (1, 64 * 64)


def test_sums_without_dsps_are_chosen_for_the_whole_program() -> None:
    asked = directive("adders", "top:sums", impl="fabric")
    without, with_ = (cost(programs.rows(), pipeline("k:j"), *more) for more in ((), (asked,)))
    adder, fabric = (present(U280.operator("f32", name)) for name in ("add", "add_fabric"))
    assert (without.logic.dsp - with_.logic.dsp) % adder.dsp == 0
    assert with_.logic.dsp < without.logic.dsp
    assert with_.loops[-1].depth <= without.loops[-1].depth - (adder.latency - fabric.latency)
    assert cost(programs.dot("f32"), pipeline("k:i"), asked) == cost(programs.dot("f32"), pipeline("k:i"))


def test_a_target_interval_is_kept_and_shares_operators() -> None:
    fast, slow = cost(programs.scale(), pipeline("k:i")), cost(programs.scale(), pipeline("k:i", 4))
    assert (fast.loops[-1].ii, slow.loops[-1].ii) == (1, 4)
    assert slow.loops[-1].limit == "target"
    unrolled = [directive("unroll", "k:i", factor=4), partition("k:x", 1, 4), partition("k:y", 1, 4)]
    wide = cost(programs.scale(), pipeline("k:i"), *unrolled)
    assert wide.loops[-1].trips == fast.loops[-1].trips // 4
    assert wide.logic.dsp == 4 * fast.logic.dsp
    assert cost(programs.scale(), pipeline("k:i", 4), *unrolled).logic.dsp == fast.logic.dsp


@pytest.mark.parametrize(
    ("kind", "factor", "interval"),
    [("cyclic", 1, 8), ("cyclic", 2, 4), ("cyclic", 4, 2), ("cyclic", 8, 1), ("complete", 0, 1), ("block", 8, 8)],
)
def test_ports_after_partitioning_bound_the_interval(kind: str, factor: int, interval: int) -> None:
    """16 neighbouring elements a round, through two ports per bank; blocks keep neighbours together."""
    schedule = [directive("unroll", "k:i", factor=16), pipeline("k:i"), partition("k:y", 1)]
    found = loop(programs.scale(), *schedule, partition("k:x", 1, factor, kind))
    assert found.ii == interval
    assert found.limit == ("target" if interval == 1 else "ports of x")


def test_the_tool_unrolls_short_loops_and_pipelines_around_them() -> None:
    short, long = cost(programs.matvec(16)), cost(programs.matvec(96))
    assert [found.names for found in short.loops] == [("i",)]
    assert [found.names for found in long.loops] == [("i", "j")]
    assert short.loops[0].ii == 8  # 16 elements of a row through two ports


def test_directives_override_what_the_tool_does() -> None:
    assert [found.names for found in cost(programs.matvec(16), pipeline("k:j")).loops] == [("i", "j")]


def test_an_element_that_is_read_back_a_few_rounds_later_divides_the_recurrence() -> None:
    once, far = loop(programs.recurrence(1), pipeline("k:i")), loop(programs.recurrence(4), pipeline("k:i"))
    assert once.ii > far.ii > 1
    assert far.ii == -(-once.ii // 4)


def test_loops_that_follow_each_other_share_operators_in_dsps() -> None:
    assert cost(programs.twice(), pipeline("k:i"), pipeline("k:j")).logic.dsp == 3


def test_control_that_depends_on_data_has_no_static_times() -> None:
    with pytest.raises(SimulationError, match="depends on data"):
        cost(programs.until())


@pytest.mark.parametrize("schedule", [(), (pipeline("k:j"),)])
def test_rounds_may_be_shifts_of_loop_variables_and_pids(schedule: tuple[Directive, ...]) -> None:
    shifts, sums = (dse.load_program(programs.stages(by_shifts)) for by_shifts in (True, False))
    assert deciding_pids(shifts.kernels[0].classes[0].body.mlir) == (True,)
    for pid in range(2):
        one, other = (task_cost(p, p.kernels[0].classes[0], U280, schedule, [pid]) for p in (shifts, sums))
        assert one.cycles == other.cycles


@pytest.mark.parametrize("schedule", [(), (pipeline("k:j"),)])
def test_loops_that_count_down_take_the_time_of_those_that_count_up(schedule: tuple[Directive, ...]) -> None:
    assert cost(programs.counting(True), *schedule).cycles == cost(programs.counting(False), *schedule).cycles


def test_a_condition_on_the_loop_variable_says_which_rounds_use_a_stream() -> None:
    found = cost(programs.every_fourth(), pipeline("k:i"))
    (repeated,) = [part for part in found.parts if isinstance(part, Pipe)]
    assert (repeated.rounds, repeated.ii) == (4, 4)
    assert [kind for _, kind, _ in repeated.ops] == ["put"]


def test_a_stream_operation_before_the_inner_loop_happens_in_its_first_round() -> None:
    found = cost(programs.rows_of_sums(), pipeline("k:j", 8))
    (repeated,) = [part for part in found.parts if isinstance(part, Pipe)]
    rounds = [(kind, time // 8) for time, kind, _ in repeated.ops]
    assert rounds == [("get", 0), ("put", 0), ("put", 1), ("put", 2), ("put", 3)]


def test_times_depend_on_the_task_where_a_stream_operation_does_and_not_where_sums_do() -> None:
    program = dse.load_program(programs.later_tasks_do_less())
    bodies = {kernel.name: {cls.body.mlir for cls in kernel.classes} for kernel in program.kernels}
    assert {name: {deciding_pids(mlir) for mlir in of} for name, of in bodies.items()} == {
        "puts": {(True,)},
        "gets": {(True,)},
        "sums": {(False,)},
    }


def unit(name: str, *bits: int, result: int = 130) -> Unit:
    return unit_of(Op(name, (0, 1), (2,), f"i{bits[0]}", result, bits), U280)


def test_operators_of_integers() -> None:
    assert [unit("arith.muli", 8, n).resources.lut for n in (8, 10)] == [44, 55]
    assert [unit("arith.muli", *b).resources.dsp for b in ((11, 8), (27, 18), (34, 32), (66, 64))] == [1, 1, 4, 16]
    assert unit("arith.muli", 32, 32, result=32).resources.dsp == 3
    assert unit("arith.muli", 66, 64).latency == 4
    assert [unit("arith.remsi", n, n).latency for n in (5, 8)] == [8, 11]


@pytest.mark.parametrize(
    ("bits", "depth", "ff", "bram18"), [(32, 2, 68, 0), (32, 32, 8, 0), (32, 128, 120, 0), (32, 160, 120, 1)]
)
def test_streams(bits: int, depth: int, ff: int, bram18: int) -> None:
    found = fifo_resources(U280, bits, depth)
    assert (found.ff, found.bram18) == (ff, bram18)


def test_a_deep_stream_takes_as_many_block_rams_as_hold_it() -> None:
    assert fifo_resources(U280, 32, 524288).bram18 == 1024
    assert fifo_steps(U280, 32, 524288)[-1] == (524288, 1024 * BRAM18_BITS)


def test_the_memories_of_a_stream_are_what_a_fifo_of_that_depth_takes() -> None:
    for bits in range(1, 600):
        for depth, size in fifo_steps(U280, bits, 200_000)[:-1]:
            blocks = fifo_resources(U280, bits, depth).bram18
            assert size == (blocks * BRAM18_BITS if blocks else depth * bits)


def test_of_loops_under_a_condition_those_of_the_side_that_is_taken_count_or_else_the_longer_ones() -> None:
    loaded = dse.load_program(programs.either_loop())
    (known, unknown) = loaded.kernels
    first, second = (task_cost(loaded, known.classes[0], U280, pid=(p,)).cycles for p in (0, 1))
    either = task_cost(loaded, unknown.classes[0], U280, pid=(0,)).cycles
    assert second > 4 * first
    assert either >= second


@given(st.integers(1, 600), st.integers(1, 200_000))
def test_the_memories_of_a_stream_are_where_what_it_takes_changes(bits: int, tokens: int) -> None:
    steps = fifo_steps(U280, bits, tokens)
    depths, sizes = zip(*steps, strict=True)
    assert list(depths) == sorted(set(depths))
    assert list(sizes) == sorted(set(sizes))
    assert depths[-1] == tokens
    for depth, size in steps:
        blocks = fifo_resources(U280, bits, depth).bram18
        assert blocks * BRAM18_BITS == (size if blocks else 0)
    for depth in depths[:-1]:
        one, more = (fifo_resources(U280, bits, n) for n in (depth, depth + 1))
        assert one != more or bits * depth <= U280.fifo.lutram_bits


@pytest.mark.parametrize(("words", "bram18"), [(128, 0), (512, 1), (1024, 2), (2048, 4), (4096, 8)])
def test_arrays(words: int, bram18: int) -> None:
    storage = Storage(Array("a", (words,), 32), (None,), place="auto" if words <= 1024 else "bram")
    assert storage.resources(U280).bram18 == bram18
    assert storage.resources(U280, 2).bram18 == 2 * bram18
    registers = Storage(Array("a", (words,), 32), (Split("cyclic", words),))
    assert registers.in_registers
    assert registers.resources(U280).ff == 32 * words


@pytest.mark.parametrize(
    ("words", "bits", "delay"),
    [(64, 64, "lutram_ns"), (900, 64, "bram_ns"), (3600, 32, "uram_ns"), (3600, 16, "bram_ns"), (8000, 64, "deep_ns")],
)
def test_the_tool_puts_memories_of_middle_depth_into_uram_and_deep_wide_ones_are_slow(
    words: int, bits: int, delay: str
) -> None:
    storage = Storage(Array("a", (words,), bits), (None,))
    assert storage.access_ns(U280) == getattr(U280.arrays, delay)
    assert (storage.resources(U280).uram > 0) == (delay == "uram_ns")
    assert not storage.resources(U280.with_options(tool="2022.1")).uram
    assert not storage.resources(FpgaDevice.load("z7045")).uram


def test_a_load_and_a_store_of_one_address_are_two_accesses_and_two_loads_are_one() -> None:
    storage = Storage(Array("a", (64,), 32), (Split("cyclic", 2),))
    at_zero = (Linear((), 0),)
    load, store = Access("a", False, at_zero), Access("a", True, at_zero)
    assert busiest_bank(storage, [(load, {}), (load, {})]) == 1
    assert busiest_bank(storage, [(load, {}), (store, {})]) == 2
    assert busiest_bank(storage, [(store, {}), (store, {})]) == 2


def test_busiest_bank_is_that_of_counting() -> None:
    """Against counting every address of random affine accesses."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        factor, kind = int(rng.integers(1, 9)), str(rng.choice(["cyclic", "block"]))
        storage = Storage(Array("a", (128,), 32), (Split(kind, factor),))
        trips, stride = int(rng.integers(1, 9)), int(rng.integers(0, 5))
        first, step = int(rng.integers(0, 4)), int(rng.integers(1, 4))
        values = range(first, first + trips * step, step)
        access = Access("a", False, (Linear(((7, stride),) if stride else (), int(rng.integers(0, 9))),))
        addresses = {present(access.index[0].value({7: i})) for i in values}  # type: ignore[union-attr]
        banks = [a // -(-128 // factor) if kind == "block" else a % factor for a in addresses]
        expected = 0 if storage.in_registers else max(banks.count(b) for b in banks)
        assert busiest_bank(storage, [(access, {7: values})]) == expected


def test_unrolled_loops_over_two_halves_of_an_array_load_all_of_it() -> None:
    storage, form = Storage(Array("a", (8,), 32), (None,)), Linear.variable(7)
    halves = [(Access("a", False, (form,)), {7: values}) for values in (range(4), range(4, 8))]
    assert busiest_bank(storage, halves) == 8


def test_accesses_at_constant_distances_meet_in_the_banks_that_they_are_in() -> None:
    """Against counting: loads of one address are one, stores are each an access of their own."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        factor = int(rng.integers(1, 9))
        storage = Storage(Array("a", (64,), 32), (Split("cyclic", factor),))
        places = rng.integers(0, 16, int(rng.integers(1, 9))).tolist()
        for writes in (False, True):
            none: dict[int, range] = {}
            accesses = [(Access("a", writes, (Linear(((7, factor),), place),)), none) for place in places]
            banks = [place % factor for place in (places if writes else set(places))]
            assert busiest_bank(storage, accesses) == max(banks.count(bank) for bank in banks)


def test_comparisons() -> None:
    assert [holds(p, -1) for p in ("eq", "ne", "slt", "sle", "sgt", "uge")] == [False, True, True, True, False, False]


def test_nests_know_views_and_names() -> None:
    nest = read_nest(dse.load_program(programs.views()).kernels[0].classes[0].body.mlir)
    assert {"x", "y"} <= set(nest.arrays)
    assert nest.unsupported is None


@pytest.mark.parametrize("count", range(2, 9))
def test_tokens_of_an_unrolled_loop_follow_each_other(count: int) -> None:
    """Each copy's token is a cycle after the one before, also of copies that are not walked one by one."""
    found = loop(programs.puts_of_a_round(count), pipeline("write:i"))
    assert (found.ii, found.depth) == (count, count + 2)


@pytest.mark.parametrize("factor", range(2, 8))
@pytest.mark.parametrize("schedule", [(), (pipeline("write:i"),)])
def test_a_loop_whose_rounds_no_factor_divides_sends_no_more_tokens(
    schedule: tuple[Directive, ...], factor: int
) -> None:
    """The last round has fewer copies than the others."""
    parts = cost(programs.burst(7), *schedule, directive("unroll", "write:i", factor=factor)).parts
    sent = [part.rounds * sum(stream == 0 for _, _, stream in part.ops) for part in parts if isinstance(part, Pipe)]
    assert sum(sent) == 7


def test_a_fifo_in_lutram_takes_lookup_tables_for_every_64_elements() -> None:
    rules, bits = U280.fifo, 16
    for depth in range(rules.shift_bits // bits + 1, rules.lutram_bits // bits + 1):
        of_64 = math.ceil(rules.lut_per_bit * bits)
        assert fifo_resources(U280, bits, depth).lut == rules.lut + of_64 * -(-depth // 64)


def test_operations_on_bits_take_half_a_lookup_table_a_bit() -> None:
    """A table with six inputs and two outputs serves two bits."""
    assert [unit("arith.andi", n, n, result=n).resources.lut for n in (1, 8, 33)] == [1, 4, 17]


def test_schedules_that_say_the_same_of_an_array_share_it() -> None:
    loaded = dse.load_program(programs.matvec(64))
    own = loaded.kernels[0].classes[0]
    planner = Planner(loaded, own, read_nest(own.body.mlir))
    names = list(planner.nest.arrays)
    split = [partition(f"k:{name}", 1, 2) for name in names]
    first, again, other = (
        planner.plan(said).storages
        for said in (split, [*split[1:], pipeline("k:i"), split[0]], [*split, partition(f"k:{names[0]}", 1, 4)])
    )
    assert [first[name] is again[name] for name in names] == [True] * len(names)
    assert [first[name] == other[name] for name in names] == [False] + [True] * (len(names) - 1)
    known = hash(other[names[0]])
    taken = pickle.loads(pickle.dumps(other[names[0]]))
    assert "_hash" not in vars(taken)
    assert (taken, hash(taken)) == (other[names[0]], known)


@pytest.mark.parametrize("kind", ["recurrence", "wide", "three uses"])
def test_which_operand_of_a_sum_comes_first_does_not_matter(kind: str) -> None:
    one, other = (cost(programs.of_two_products(kind, swapped), pipeline("k:i")) for swapped in (False, True))
    assert (one.loops, one.logic) == (other.loops, other.logic)


def test_flattened_nests_run_the_rounds_of_each_value_of_the_loop_around_them() -> None:
    program = dse.load_program(programs.triangle_of_nests())
    (task_class,) = program.kernels[0].classes
    rounds = sum(8 * 8 * i for i in range(4))
    assert rounds <= task_cost(program, task_class, U280).cycles <= rounds + 4 * 5  # of each a short drain
