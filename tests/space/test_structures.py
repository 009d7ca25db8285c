"""The search over the mapper's own programs and folds."""

import numpy as np
import pytest

from allo_dse.device.device import Device
from allo_dse.errors import IllegalFold
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from allo_dse.space.params import ParameterSpace, choices
from allo_dse.space.samplers import random_suggest
from allo_dse.space.space import Space
from allo_dse.space.structures import MapperStructures
from tests.support.programs import attention_program, gemm_program, ring_program, stages_program


@pytest.fixture
def gemm_space(monkeypatch):
    monkeypatch.setattr(
        "allo_dse.space.structures.load_program",
        lambda source, **p: Program.of(gemm_program(512, 512, 512, p["Pm"], p["Pn"], p["Pk"])),
    )
    tiles = choices([4, 8], ordered=True)
    parameters = ParameterSpace({"Pm": tiles, "Pn": tiles, "Pk": tiles})
    return Space(parameters, MapperStructures(None, Device.load("npu1_4col")))


def test_the_hand_written_mapping_is_in_the_space(gemm_space):
    params = next(p for p in gemm_space.parameters.assignments() if set(p.values()) == {8})
    program = gemm_space.structures.program(params)
    axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    fold = MeshFold((KernelFold(program.kernels[0].name, axes, (1, 2)),)).normalised(ProgramGraph(program))
    assert gemm_space.decode_genes(gemm_space.encode(params, fold, 1)).design.fold == fold


def test_all_designs_are_counted_distinct_and_decodable(gemm_space):
    designs = list(gemm_space.designs())
    assert len(designs) == gemm_space.count(10**6) == len({c.key for c in designs})
    for candidate in designs[::37]:
        assert gemm_space.decode_genes(candidate.genes).key == candidate.key
        assert candidate.design.fold.node_count <= 16


def test_programs_of_several_kernels(monkeypatch):
    program = Program.of(attention_program(2, 2, 8))
    monkeypatch.setattr("allo_dse.space.structures.load_program", lambda source: program)
    space = Space(ParameterSpace({}), MapperStructures(None, Device.load("npu1_4col")))
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(50)]
    legal = [c for c in found if c is not None]
    assert legal
    for candidate in legal:
        genes = space.encode(candidate.params, candidate.design.fold, candidate.design.buffering.output_depth)
        assert space.decode_genes(genes).key == candidate.key
    assert space.structures.digest(program) == space.structures.digest(Program.of(attention_program(2, 2, 8)))


@pytest.mark.parametrize(
    "program",
    [
        attention_program(4, 4, 8),
        stages_program((2, 4), ("grid", "turned")),
        stages_program((2, 4), ("grid", "sums")),
        stages_program((2, 4), ("row", "grid", "row")),
    ],
)
def test_folds_across_kernels_have_genes(monkeypatch, program):
    loaded = Program.of(program)
    monkeypatch.setattr("allo_dse.space.structures.load_program", lambda source: loaded)
    space = Space(ParameterSpace({}), MapperStructures(None, Device.load("npu1_4col")))
    designs = list(space.designs())
    assert len(designs) == space.count(10**6)
    assert any(candidate.design.fold.chains for candidate in designs)
    for candidate in designs[::7]:
        assert space.decode_genes(candidate.genes).key == candidate.key
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(100)]
    assert sum(candidate is not None for candidate in found) > 50


def test_a_program_that_cannot_fit_says_why(monkeypatch):
    program = Program.of(ring_program(20, [(0, 1), (1, 3)]))
    monkeypatch.setattr("allo_dse.space.structures.load_program", lambda source: program)
    space = Space(ParameterSpace({}), MapperStructures(None, Device.load("npu1_4col")))
    with pytest.raises(IllegalFold, match="needs 20 nodes or more, and npu1_4col has 16") as caught:
        space.decode_genes({})
    assert "wires" in caught.value.hint
    assert space.count(10) == 0
