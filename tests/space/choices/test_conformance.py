"""What every kind of choice promises (`space/choice.py`). A new kind adds a line to CASES."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.choices.auto_schedules import AutoSchedules
from allo_dse.backends.fpga.choices.schedules import DeclaredSchedules
from allo_dse.backends.fpga.choices.stream_depths import StreamDepths
from allo_dse.backends.npu.backend import KernelLibrary
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold_space import unfolded
from allo_dse.mapper.program import Program
from allo_dse.space.choice import Choice
from allo_dse.space.choices.folds import FoldChoice, TaskFolds
from allo_dse.space.choices.kernel_folds import KernelFolds
from allo_dse.space.choices.parameters import ParameterChoice
from allo_dse.space.choices.shared import OutputDepth
from allo_dse.space.design import Draft
from allo_dse.space.genes import Gene, Genes, random_suggest, suggest_from
from allo_dse.space.params import ParameterSpace, choices
from allo_dse.space.space import Space

from ...backends.fpga.cost import programs
from ...support.programs import attention_program, gemm_program, vector_add_program
from ..support import NPU, MadePrograms

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from add_a_choice import InputDepth

U280 = FpgaDevice.load("u280")


def on_npu(program: CompiledProgram) -> Draft:
    made = Program.of(program)
    return Draft(NPU, program=made, fold=unfolded(made))


def on_fpga() -> Draft:
    program = dse.load_program(programs.scale())
    return Draft(U280, program=program, fold=unfolded(program))


def parameters() -> ParameterChoice:
    def make(kind: str, tasks: int = 2) -> Program:
        if tasks == 3:
            raise dse.AlloDseError("three tasks do not compile")
        return Program.of(vector_add_program(tasks, 240))

    space = ParameterSpace(
        {"kind": choices("ab"), "tasks": choices([1, 2, 3, 4], ordered=True, when=lambda p: p.kind == "b")},
        [lambda p: p.get("tasks") != 4],
    )
    return ParameterChoice(space, MadePrograms(make))


CASES: dict[str, Callable[[], tuple[Choice, Draft]]] = {
    "parameters": lambda: (parameters(), Draft(NPU)),
    "kernel folds": lambda: (KernelFolds(NPU), on_npu(gemm_program(64, 64, 64, 4, 2, 4))),
    "kernel folds of several kernels": lambda: (KernelFolds(NPU), on_npu(attention_program(2, 2, 8))),
    "task folds": lambda: (TaskFolds(NPU), on_npu(vector_add_program(5, 1280))),
    "output depth": lambda: (OutputDepth((1, 2, 4)), Draft(NPU)),
    "clock": lambda: (dse.clock((100, 200, 300)), on_fpga()),
    "stream depths": lambda: (StreamDepths((0, 0.01, 0.1)), on_fpga()),
    "kernel library": lambda: (KernelLibrary(NPU, ["tuned"]), on_npu(gemm_program(128, 128, 64, 4, 4, 2))),
    "declared schedules": lambda: (
        DeclaredSchedules([dse.unroll("k:i", [1, 2, 4]), dse.memory("k:y", ["auto", "uram"])], U280),
        on_fpga(),
    ),
    "auto schedules": lambda: (AutoSchedules(U280), on_fpga()),
    "the example": lambda: (InputDepth(), Draft(NPU)),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]:
    choice, draft = CASES[request.param]()
    return choice, draft, list(choice.options(draft))


def legal(options: list[tuple[Draft | None, Genes]]) -> list[tuple[Draft, Genes]]:
    return [(option, genes) for option, genes in options if option is not None]


def test_options_are_distinct_and_counted(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    choice, draft, options = case
    found = [option for option, _ in legal(options)]
    assert len(found) > 1
    assert all(one != other for one, other in pairwise(found))
    assert len({json.dumps(genes, sort_keys=True) for _, genes in options}) == len(options)
    assert choice.count(draft, 10**6) == len(found)
    assert choice.count(draft, 1) > 1


def test_the_genes_of_an_option_decode_to_it(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    choice, draft, options = case
    for option, genes in legal(options)[:: max(1, len(options) // 40)]:
        assert choice.decode(draft, suggest_from(genes)) == option


def test_a_design_is_encoded_and_decoded(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    choice, draft, options = case
    for option, _ in legal(options)[:: max(1, len(options) // 20)]:
        whole = option if option.fold is not None else replace(option, fold=unfolded(gemm().compiled))
        whole = whole if whole.program is not None else replace(whole, program=gemm().program)
        again = choice.decode(draft, suggest_from(choice.encode(draft, whole.design())))
        assert again == option


def gemm() -> Draft:
    return on_npu(gemm_program(8, 8, 8, 2, 2, 2))


def test_any_genes_decode_alike_each_time(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    """Also in another object, and from the genes that were asked for alone; what is decoded is an option."""
    choice, draft, options = case
    rng = np.random.default_rng(0)
    found = [option for option, _ in legal(options)]
    decided = 0
    for _ in range(30):
        asked: dict[str, tuple[Gene, int]] = {}

        def ask(name: str, gene: Gene, asked: dict[str, tuple[Gene, int]] = asked) -> int:
            assert name not in asked
            asked[name] = gene, random_suggest(rng)(name, gene)
            return asked[name][1]

        try:
            option = choice.decode(draft, ask)
        except dse.AlloDseError:
            continue
        assert all(gene.low < gene.high and gene.low <= value <= gene.high for gene, value in asked.values())
        assert choice.decode(draft, suggest_from({name: value for name, (_, value) in asked.items()})) == option
        if option is not None:
            decided += 1
            # Enumeration of folds leaves out what is alike or cannot fit; what is proposed is encoded all the same.
            if isinstance(choice, FoldChoice):
                assert choice.decode(draft, suggest_from(choice.encode(draft, option.design()))) == option
            else:
                assert option in found
    assert decided


def test_it_writes_and_reads_what_it_says(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    choice, draft, options = case
    written = {name.partition(".")[0] for name in choice.writes}
    others = [field.name for field in fields(Draft) if field.name not in written]
    for option, _ in legal(options)[:: max(1, len(options) // 20)]:
        assert all(getattr(option, name) == getattr(draft, name) for name in others)
    changed = replace(draft, buffering=dse.Buffering(4, 4, 4), depths=(("s", 3),), fold=gemm().fold)
    assert [genes for _, genes in choice.options(changed)] == [genes for _, genes in options]


def test_its_description_is_plain_and_its_own(case: tuple[Choice, Draft, list[tuple[Draft | None, Genes]]]) -> None:
    choice, _, _ = case
    assert json.loads(json.dumps(choice.describe())) == choice.describe() != {}


def test_a_choice_comes_after_those_it_depends_on() -> None:
    with pytest.raises(dse.StudyError, match="KernelFolds depends on program, which is decided after it"):
        Space(Draft(NPU), [KernelFolds(NPU), parameters()])
