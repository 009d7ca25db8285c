"""Schedule spaces: what is generated is legal, enumeration and genes agree, and ports bound intervals."""

from __future__ import annotations

import pickle
from typing import Any, cast

import numpy as np
import pytest

import allo_dse.lang

allo_dse.lang.install()

import allo
from allo.ir.types import int32

import allo_dse as dse
from allo_dse.backends.fpga.choices.auto_schedules import AutoSchedules, schedules_of
from allo_dse.backends.fpga.choices.nests import Level, at_most, needed_banks, uses_of
from allo_dse.backends.fpga.choices.schedules import DeclaredSchedules
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.common.errors import StudyError
from allo_dse.device.device import FpgaDevice
from allo_dse.space.design import Draft
from allo_dse.space.genes import random_suggest
from benchmarks import fpga_programs
from tests.support.values import present

from ..cost import programs

U280 = FpgaDevice.load("u280")


@pytest.mark.parametrize("trip_counts", [(4, 8), (6, 9), (7, 2)])
def test_so_many_copies_as_divide_the_trips_but_not_more_than_wanted(trip_counts: tuple[int, ...]) -> None:
    *_, inner = trip_counts
    for wanted in range(1, 40):
        levels = Level(trip_counts[0], inner, passes=False), Level(inner, 1, passes=False)
        copies, level, factor = at_most(levels, wanted, 64)
        possible = [n for n in range(1, inner + 1) if inner % n == 0]
        possible += [n * inner for n in range(1, trip_counts[0] + 1) if trip_counts[0] % n == 0]
        assert copies == max(n for n in possible if n <= min(wanted, 64))
        assert copies == factor * (inner if level else 1)


def test_directives_leave_the_hash_of_their_process_behind() -> None:
    said = dse.pipeline("gemm:k", [2]).directive(2)
    known = hash(said), str(said)
    found = pickle.loads(pickle.dumps(said))
    assert not vars(found).keys() - {"kind", "scope", "name", "options"}
    assert found == said
    assert (hash(found), str(found)) == known


def study(program: Any, schedules: Any, device: str | FpgaDevice = "u280") -> dse.Study:
    return dse.Study(
        "s", program=program, device=device, objectives=[dse.minimize("latency_cycles")], schedules=schedules
    )


def test_the_loops_of_a_single_task_are_searched_unless_the_study_says_otherwise() -> None:
    class Bench:
        name, version = "bench", "1"

        def evaluate(self, design: dse.Design) -> dict[str, float]:
            return {"latency_cycles": 1.0}

    def genes(program: Any, schedules: Any = None, evaluator: Any = None) -> set[str]:
        one = dse.Study(
            "s", program=program, device=U280, objectives=[dse.minimize("latency_cycles")], schedules=schedules,
            evaluator=evaluator,
        )  # fmt: skip
        found = one.space.decode(random_suggest(np.random.default_rng(0)))
        return {name for name in present(found).genes if name.startswith(("schedule", "loops", "parts"))}

    def loops(A: int32[8, 8], B: int32[8, 8], C: int32[8, 8]) -> None:
        for i in range(8):
            for j in range(8):
                for k in range(8):
                    C[i, j] += A[i, k] * B[k, j]

    customized = allo.customize(loops)
    customized.pipeline("j")
    assert genes(loops) == genes(loops, "auto") >= {"schedule.pack.A"}
    assert not genes(loops, ()) | genes(loops, evaluator=Bench()) | genes(customized)
    several = fpga_programs.elements()
    assert genes(several, "auto")
    assert not genes(several)


def test_declared_values_that_are_not_legal_are_not_generated() -> None:
    draft = Draft(U280, program=dse.load_program(programs.scale()))
    declared = DeclaredSchedules(
        [
            dse.pipeline("k:i", [1, 2]),
            dse.unroll("k:i", [1, 2, 3, 4]),
            dse.partition("X", 1, [1, 3, 4]),
            dse.pack("X", [32, 48, 64, 1024]),
            dse.memory("k:y", ["auto", "uram"]),
        ],
        U280,
    )
    found = [option.schedule for option, _ in declared.options(draft) if option is not None]
    assert len(found) == declared.count(draft, 10**6) == 2 * 3 * 2 * 2 * 2
    assert len({tuple(map(str, schedule)) for schedule in found}) == len(found)
    factors = {d.options["factor"] for schedule in found for d in schedule if d.kind == "unroll"}
    assert factors == {2, 4}
    assert {d.options["bits"] for s in found for d in s if d.kind == "pack"} == {32, 64}
    assert declared.count(draft, 10) == 11


def test_a_device_without_ultra_ram_offers_none() -> None:
    device = FpgaDevice.load("z7020")
    declared = DeclaredSchedules([dse.memory("k:y", ["auto", "uram"])], device)
    assert declared.count(Draft(device, program=dse.load_program(programs.scale())), 10) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dse.pipeline("k:i", [-1]), "pipeline"),
        (lambda: dse.unroll("k:i", []), "unroll"),
        (lambda: dse.unroll("k:i", cast("Any", 2)), r"unroll\(k:i\): needs integers of at least 1, not 2"),
        (lambda: dse.partition("X", 0, [2]), r"partition\(X\): dim: needs integers of at least 1, not \[0\]"),
        (lambda: dse.partition("X", 1, [2], kind="diagonal"), "'cyclic' or 'block'"),
        (lambda: dse.memory("X", ["disk"]), "known places"),
        (lambda: schedules_of(["every"], U280), "not a schedule parameter"),
        (lambda: schedules_of(3, U280), "3 is not a schedule parameter"),  # type: ignore[arg-type]
        (lambda: schedules_of("auto", dse.Device.load("npu1_1col")), "is no FPGA"),
        (lambda: DeclaredSchedules([dse.pack("X", [32]), dse.pack("X", [64])], U280), "declared twice"),
    ],
)
def test_wrong_declarations(make: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"(?s){message}"):
        make()


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (dse.unroll("k:z", [2]), r"no loop 'k:z'.*known: k:i"),
        (dse.pipeline("k:z"), r"no loop 'k:z'.*known: k:i"),
        (dse.pipeline("l:i"), r"no loop 'l:i'.*did you mean k:i\?"),
        (dse.partition("Z", 1, [2]), r"no array 'Z'.*known: X, Y, k:x, k:y"),
        (dse.memory("k:z", ["bram"]), r"no array 'k:z'.*did you mean k:[xy]\?"),
        (dse.pack("k:x", [32]), r"no tensor 'k:x'.*known: X, Y"),
        (dse.stream_depth("z", [32]), r"no stream 'z'.*known: none"),
        (dse.unroll("k:i", [3, 5]), "no value of unroll.k:i is legal.*rounds of the loop"),
        (dse.partition("X", 3, [2]), "no value of partition.X.3 is legal.*a dimension that there is"),
        (dse.pack("X", [24]), "no value of pack.X is legal.*multiples of an element's"),
    ],
)
def test_targets_must_exist(parameter: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"(?s){message}"):
        list(DeclaredSchedules([parameter], U280).options(Draft(U280, program=dse.load_program(programs.scale()))))


def test_genes_of_enumerated_designs_decode_to_them() -> None:
    space = study(programs.scale(), ["auto", *(dse.memory(name, ["onchip"]) for name in "XY")]).space
    designs = list(space.designs())
    assert len(designs) == space.count(10**6)
    assert len({candidate.key for candidate in designs}) == len(designs) > 20
    for candidate in designs[:: max(1, len(designs) // 50)]:
        again = space.decode_genes(candidate.genes)
        assert again is not None
        assert again.key == candidate.key


def test_random_genes_always_give_a_legal_schedule() -> None:
    space = study(fpga_programs.products, "auto").space
    rng = np.random.default_rng(0)
    for _ in range(40):
        candidate = space.decode(random_suggest(rng))
        assert candidate is not None
        for directive in candidate.design.schedule:
            if directive.kind == "unroll":
                assert 64 % directive.options["factor"] == 0
        assert space.decode_genes(candidate.genes).key == candidate.key  # type: ignore[union-attr]


def test_derived_banks_are_what_the_copies_need() -> None:
    program = dse.load_program(fpga_programs.elements())
    needed = needed_banks(uses_of(program.kernels[0])[0], {"j": 4})
    assert {array: dims for (_, array), dims in needed.items()} == {"A": {2: 64}, "B": {1: 64, 2: 4}}


def test_derived_banks_let_every_copy_run_each_cycle() -> None:
    """With all the banks that copies need, only recurrences and targets set the interval."""
    space = study(programs.scale(), ["auto", *(dse.memory(name, ["onchip"]) for name in "XY")]).space
    best = min(space.designs(), key=lambda c: FpgaSimulator().evaluate(c.design).latency_cycles)
    unrolled = {d.options["factor"] for d in best.design.schedule if d.kind == "unroll"}
    assert unrolled == {256}
    assert {d.options["factor"] for d in best.design.schedule if d.kind == "partition"} <= {128, 256}


def test_schedules_are_described_and_change_the_fingerprint() -> None:
    plain, auto = (study(programs.scale(), s).space for s in ((), "auto"))
    assert "schedules" not in plain.describe()
    assert plain.fingerprint != auto.fingerprint
    assert plain.count(10) == 1


def test_a_study_finds_a_fast_schedule(tmp_path: Any) -> None:
    found = study(programs.scale(), ["auto", *(dse.memory(name, ["onchip"]) for name in "XY")]).run(
        trials=60, seed=1, run_dir=tmp_path / "run", progress="quiet", verify=True
    )
    best = found.best("latency_cycles")
    plain = FpgaSimulator().evaluate(next(study(programs.scale(), ()).space.designs()).design)
    assert present(best.record.metrics)["latency_cycles"] * 10 < plain.latency_cycles
    assert cast(Any, AutoSchedules(U280).describe()["schedules"])[0] == "auto"


@pytest.mark.parametrize("dsp", [8, 16])
def test_as_many_copies_are_offered_as_can_share_the_multipliers(dsp: int) -> None:
    """At the longest interval that is offered, a multiplier serves as many copies as the interval has cycles."""
    space = study(programs.scale(), "auto", U280.with_options(dsp=dsp)).space
    said = [d for candidate in space.designs() for d in candidate.design.schedule]
    copies = [d.options["factor"] for d in said if d.kind == "unroll"]
    intervals = [d.options.get("initiation_interval", 1) for d in said if d.kind == "pipeline"]
    assert max(copies) == dsp * max(intervals)


def test_loops_of_one_name_are_told_apart() -> None:
    (task_class,) = dse.load_program(programs.filter_with_window()).kernel("taps").classes
    assert task_class.loop_names == ("i", "t@1", "t@2")
    assert task_class.called("t") == [1, 2]
    assert task_class.called("t@2") == [2]


def test_a_window_is_split_completely_and_its_loops_are_unrolled() -> None:
    space = study(programs.filter_with_window(), "auto").space
    schedules = [{str(d) for d in one.design.schedule if d.scope == "taps"} for one in space.designs()]
    pipelined = [s for s in schedules if "pipeline(taps:i, initiation_interval=1)" in s]
    assert pipelined
    assert any("partition(taps:window, dim=1, factor=8, partition_type=complete)" in s for s in pipelined)


def test_loops_that_pass_tokens_are_not_unrolled() -> None:
    """Tokens of one stream pass one by one: copies of the body would wait for each other."""
    for candidate in study(programs.filter_with_window(), "auto").space.designs():
        unrolled = {d.name for d in candidate.design.schedule if d.kind == "unroll"}
        assert "i" not in unrolled


@pytest.mark.parametrize(
    ("extent", "copies", "expected"),
    [(64, {"i": 1}, {1: 4}), (64, {"i": 2}, {1: 4}), (63, {"i": 1}, {1: 3}), (64, {"i": 8}, {1: 16})],
)
def test_neighbours_that_a_round_reads_lie_in_different_banks(
    extent: int, copies: dict[str, int], expected: dict[int, int]
) -> None:
    (uses,) = uses_of(dse.load_program(programs.neighbours(extent)).kernels[0])
    assert {array[1]: dims for array, dims in needed_banks(uses, copies).items()}["X"] == expected
