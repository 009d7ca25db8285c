"""What designs of one program share is what each would find by itself: costs, bounds and metrics, in any order."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.depths.solver import solve_depths
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import keep, replace
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.lang import install
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest
from allo_dse.tune.study import Study

install()

from allo.ir.types import int32

from studies import gemm_zcu102, polybench_fpga, systolic_fpga

from ...compiler import samples
from .cost import programs

STUDIES: dict[str, Any] = {
    "systolic": lambda: systolic_fpga.study(size=8, depth=8),
    "daisy chain": lambda: systolic_fpga.study("daisy", size=16, depth=16),
    "gemm": lambda: gemm_zcu102.study(),
    "polybench": lambda: matrix_and_vectors(),
    "tensors in DRAM": lambda: tensors_in_dram(),
}


def matrix_and_vectors() -> Study:
    """PolyBench's atax with small tensors, which it keeps on the chip, and schedules of its own."""
    params = {
        "M": 12,
        "N": 20,
        "P": dse.divisors(12, at_least=3, at_most=6),
        "V": dse.choices([5, 10]),
        "W": dse.choices([2, 5]),
    }
    return Study(
        "atax", program=polybench_fpga.atax, params=params, device="u280", objectives=[dse.minimize("latency_us")],
        schedules=["auto", *(dse.memory(name, ["onchip"]) for name in "AXY")],
    )  # fmt: skip


def tensors_in_dram() -> Study:
    """A GEMM whose tensors are copied, or stay where they are, in words of several widths."""
    places = [dse.memory(name, ["auto", "onchip", "dram"]) for name in ("A", "B", "C")]
    words = [dse.pack(name, [32, 64, 128]) for name in ("A", "B", "C")]
    params = {"M": 16, "N": 24, "K": 32, "Pm": 2, "Pn": 3, "Pk": 4, "TyI": int32, "TyO": int32}
    return Study(
        "in_dram", program=samples.gemm, params=params, device="u280", objectives=[dse.minimize("latency_us")],
        schedules=[*places, *words],
    )  # fmt: skip


@cache
def opened(name: str) -> tuple[Study, FpgaSimulator]:
    """A study, and a simulator that has seen whatever tests have asked it before."""
    found: Study = STUDIES[name]()
    return found, FpgaSimulator()


def alone(design: Design) -> Design:
    """The same design of a program that no other design has been made of."""
    return replace(design, program=Program.of(design.program, design.program.source, apart=design.program.apart))


def found_of(design: Design, simulator: FpgaSimulator) -> dict[str, Any]:
    """Everything that designs have part of in common."""
    costs, bounding = FpgaMapping.of(design), simulator.bounding()
    try:
        found: dict[str, Any] = {
            "resources": costs.resources,
            "total": costs.total,
            "tensors": costs.tensors,
            "traffic": costs.dram_bytes,
            "memory": costs.fifo_bits,
            "operations": costs.operations,
            "bounds": [bounding(design, level) for level in range(bounding.levels)],
            "violations": [str(violation) for violation in design.mapping.violations],
        }
    except AlloDseError as error:
        return {"error": str(error)}
    return found if found["violations"] else found | {"metrics": dict(simulator.evaluate(design))}


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(STUDIES)), seed=st.integers(0, 2**32 - 1), kept=st.sampled_from([2, 1024]))
def test_what_designs_share_is_what_each_finds_alone(name: str, seed: int, kept: int) -> None:
    """Also where hardly anything is kept."""
    (study, simulator), rng = opened(name), np.random.default_rng(seed)
    drawn = (study.space.decode(random_suggest(rng)) for _ in range(30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keep, "__defaults__", (kept,))
        for candidate in islice((c for c in drawn if c is not None), 3):
            design = candidate.design
            assert found_of(design, simulator) == found_of(alone(design), FpgaSimulator())


def test_every_design_of_a_small_space_is_timed_as_if_it_were_the_only_one() -> None:
    study, simulator = systolic_fpga.study(size=8, depth=8), FpgaSimulator()
    legal = [c.design for c in study.space.designs() if not study.check(c.design)][::5]
    assert len({design.program for design in legal}) > 1
    for design in legal:
        depths, (timed,) = solve_depths(FpgaMapping.of(alone(design)))  # which knows no bound
        metrics = simulator.evaluate(design)
        assert (metrics["latency_cycles"], metrics["stream_depths"]) == (timed.result.cycles, depths)


def test_schedules_that_differ_in_nothing_that_elements_are_built_of_share_their_resources() -> None:
    program, u280 = dse.load_program(programs.dot("f32")), FpgaDevice.load("u280")
    tensor = program.tensors[0].name
    copied = Directive("place", "top", tensor, {"memory": "copied"})
    packed = [(copied, Directive("pack", "top", tensor, {"bits": bits})) for bits in (64, 128)]
    split = (
        copied,
        Directive("partition", "top", tensor, {"dim": 1, "factor": 2, "partition_type": "cyclic"}),
    )
    narrow, wide, banked = (FpgaMapping(program.vmg, u280, schedule=s) for s in (*packed, split))
    assert narrow.processing == wide.processing
    assert narrow.processing != banked.processing
    assert narrow.tensors != wide.tensors


def test_no_more_is_kept_than_is_asked_for() -> None:
    known: dict[int, str] = {}
    for number in range(10):
        assert keep(known, number, str(number), most=4) == str(number)
        assert len(known) <= 4
