"""The search over the mapper's own programs and folds."""

import numpy as np
import pytest

from allo_dse.common.errors import IllegalFold
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.choices.kernel_folds import KernelFolds
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest
from allo_dse.space.params import ParameterSpace, choices
from allo_dse.space.space import Space

from ...support.programs import attention_program, gemm_program, ring_program, stages_program
from ...support.values import present
from ..support import NPU, folded_space


@pytest.fixture
def gemm_space() -> Space:
    tiles = choices([4, 8], ordered=True)
    return folded_space(
        lambda Pm, Pn, Pk: Program.of(gemm_program(512, 512, 512, Pm, Pn, Pk)),
        KernelFolds(NPU),
        parameters=ParameterSpace({"Pm": tiles, "Pn": tiles, "Pk": tiles}),
    )


def test_the_hand_written_mapping_is_in_the_space(gemm_space: Space) -> None:
    program = present(gemm_space.decode_genes({"param.Pm": 1, "param.Pn": 1, "param.Pk": 1})).design.program
    axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    fold = MeshFold((KernelFold(program.kernels[0].name, axes, (1, 2)),)).normalised(ProgramGraph(program))
    design = Design(program, fold, Buffering(output_depth=1), NPU)
    assert present(gemm_space.decode_genes(gemm_space.encode(design))).key == design.key


def test_all_designs_are_counted_distinct_and_decodable(gemm_space: Space) -> None:
    designs = list(gemm_space.designs())
    assert len(designs) == gemm_space.count(10**6) == len({c.key for c in designs})
    for candidate in designs[::37]:
        assert present(gemm_space.decode_genes(candidate.genes)).key == candidate.key
        assert candidate.design.fold.node_count <= 16


def test_programs_of_several_kernels() -> None:
    program = Program.of(attention_program(2, 2, 8))
    space = folded_space(lambda: program, KernelFolds(NPU))
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(50)]
    legal = [c for c in found if c is not None]
    assert legal
    for candidate in legal:
        assert present(space.decode_genes(space.encode(candidate.design))).key == candidate.key
    assert program.digest == Program.of(attention_program(2, 2, 8)).digest


@pytest.mark.parametrize(
    "program",
    [
        attention_program(4, 4, 8),
        stages_program((2, 4), ("grid", "turned")),
        stages_program((2, 4), ("grid", "sums")),
        stages_program((2, 4), ("row", "grid", "row")),
    ],
)
def test_folds_across_kernels_have_genes(program: CompiledProgram) -> None:
    loaded = Program.of(program)
    space = folded_space(lambda: loaded, KernelFolds(NPU))
    designs = list(space.designs())
    assert len(designs) == space.count(10**6)
    assert any(candidate.design.fold.chains for candidate in designs)
    for candidate in designs[::7]:
        assert present(space.decode_genes(candidate.genes)).key == candidate.key
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(100)]
    assert sum(candidate is not None for candidate in found) > 50


def test_a_program_that_cannot_fit_says_why() -> None:
    program = Program.of(ring_program(20, [(0, 1), (1, 3)]))
    space = folded_space(lambda: program, KernelFolds(NPU))
    with pytest.raises(IllegalFold, match="needs 20 nodes or more, and npu1_4col has 16") as caught:
        space.decode_genes({})
    assert "wires" in caught.value.hint
    assert space.count(10) == 0
