from types import SimpleNamespace
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold, unfolded
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.tune.results.explain import explain

from ...backends.fpga.cost import programs
from ...support.programs import gemm_program


def design(
    axes: tuple[AxisFold, AxisFold, AxisFold],
    order: tuple[int, ...],
    mesh: tuple[int, int, int] = (32, 32, 32),
    output_depth: int = 1,
) -> Any:
    k, m, n = mesh
    program = Program.of(gemm_program(64 * m, 64 * n, 64 * k, m, n, k))
    fold = MeshFold((KernelFold(program.kernels[0].name, axes, order),))
    return SimpleNamespace(
        program=program,
        fold=fold,
        vmg=program.vmg.fold(fold),
        buffering=Buffering(output_depth=output_depth),
        device=dse.Device.load("npu1_4col"),
    )


def test_the_hand_written_mapping_in_words() -> None:
    mapped = design((AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic")), (1, 2))
    text = explain(mapped, {"bound": {"dram": 0.712, "core": 0.4}, "bottleneck": "dram"})
    assert text == (
        "chained 32 reduction steps, bundled 8x8 output tiles per core (cyclic; axis 1 outermost), laid out 4x4; "
        "16 cores; single-buffered output; bound by DRAM: 71 %"
    )


def test_half_k_chains_and_no_loops() -> None:
    mapped = design((AxisFold(2, "block", "chain"), AxisFold(4), AxisFold(2)), (), (32, 4, 2), output_depth=2)
    assert explain(mapped, {}) == "chained 16 reduction steps, laid out 2x4x2; 16 cores; double-buffered output"


def test_one_core_and_mixed_patterns() -> None:
    mapped = design((AxisFold(1, "block", "chain"), AxisFold(2, "cyclic"), AxisFold(4)), (2, 1))
    text = explain(mapped, {"bound": {"core": 1.0}})
    assert "(axis 1 cyclic, axis 2 block; axis 2 outermost)" in text
    assert text.endswith("bound by the cores: 100 %")
    single = design((AxisFold(1), AxisFold(1), AxisFold(1)), (), (1, 1, 1))
    assert explain(single, {}).startswith("on one core; 1 core;")


@pytest.mark.parametrize(("program", "once"), [(programs.until, True), (lambda: programs.recurrence(4), False)])
def test_a_latency_without_rounds_that_data_decides_is_a_lower_bound(program: Any, once: bool) -> None:
    loaded = dse.load_program(program())
    made = dse.Design(loaded, unfolded(loaded), Buffering(), dse.Device.load("npu1_4col"))
    assert ("count once: latency is a lower bound" in explain(made, {})) == once
