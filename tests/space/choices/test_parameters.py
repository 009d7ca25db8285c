"""Parameters of programs that cannot be built mean the nearest that can."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import Hopeless
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.eval.backend import Buildable
from allo_dse.lang import install
from allo_dse.mapper.program import Program
from allo_dse.space.choices.parameters import MOST_TRIED, ParameterChoice, nearest_first
from allo_dse.space.design import Draft
from allo_dse.space.genes import suggest_from
from allo_dse.space.params import Assignment, ParameterSpace, choices

from ...support.programs import vector_add_program
from ..support import NPU, MadePrograms

install()

from studies.gemm_npu import study

PARAMETERS = {"a": choices(range(5), ordered=True), "b": choices(range(4), ordered=True), "c": choices("xyz")}
EVERY = list(itertools.product(range(5), range(4), range(3)))
PROGRAM = Program.of(vector_add_program(2, 240))
Place = tuple[int, int, int]


def make(a: int, b: int, c: str) -> Program:
    if (a, b) == (0, 0):
        raise AlloDseError("does not compile")
    return PROGRAM


class Somebody:
    """Builds some programs, and says so of none before it is compiled."""

    name = "somebody"

    def __init__(self, good: set[Place]) -> None:
        self.good = good

    def tasks(self, count: int) -> None: ...

    def ports(self, ports: Sequence[TensorPort]) -> None: ...

    def rewrites(self, program: Program) -> list[str]:
        return []

    def program(self, program: Program) -> None:
        p = program.params
        if (p["a"], p["b"], "xyz".index(str(p["c"]))) not in self.good:
            raise Hopeless("not good")


def is_hopeless(looked_at: Callable[[], object]) -> bool:
    try:
        looked_at()
    except Hopeless:
        return True
    return False


def choice(good: set[Place]) -> ParameterChoice:
    space = ParameterSpace(PARAMETERS, [lambda p: p.a != 4])
    return ParameterChoice(space, MadePrograms(make), Somebody(good))


def decoded(chosen: ParameterChoice, place: Place) -> Assignment | None:
    genes = dict(zip(("param.a", "param.b", "param.c"), place, strict=True))
    found = chosen.decode(Draft(NPU), suggest_from(genes))
    return None if found is None else found.params


def steps(one: Place, other: Place) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1]) + (one[2] != other[2])


@given(st.sets(st.sampled_from(EVERY), min_size=1), st.sampled_from(EVERY))
def test_the_nearest_program_that_can_be_built_is_taken(good: set[Place], wanted: Place) -> None:
    possible = {place for place in good if place[0] != 4 and place[:2] != (0, 0)}
    if not possible:
        return
    found = decoded(choice(good), wanted)
    assert found is not None
    place = (found["a"], found["b"], "xyz".index(str(found["c"])))
    assert place in possible
    assert steps(wanted, place) == min(steps(wanted, other) for other in possible)
    assert decoded(choice(good), wanted) == found


def test_options_are_what_can_be_built() -> None:
    options = [option for option, _ in choice({(1, 2, 0), (4, 0, 0), (0, 0, 1)}).options(Draft(NPU)) if option]
    assert [dict(option.params) for option in options] == [{"a": 1, "b": 2, "c": "x"}]


def test_where_nothing_can_be_built_parameters_stay_as_they_are() -> None:
    """So that the search can say what rules them out."""
    found = decoded(choice(set()), (1, 1, 1))
    assert found is not None
    assert dict(found) == {"a": 1, "b": 1, "c": "y"}
    assert decoded(choice(set()), (4, 1, 1)) is None
    with pytest.raises(AlloDseError, match="does not compile"):
        decoded(choice(set()), (0, 0, 0))


@given(st.sampled_from(EVERY))
def test_all_positions_come_once_and_the_nearest_first(start: Place) -> None:
    found = [tuple(p.values()) for p in nearest_first(dict(zip("abc", start, strict=True)), PARAMETERS)]
    assert sorted(found) == EVERY
    far = [steps(start, place) for place in found]  # type: ignore[arg-type]
    assert far == sorted(far)
    assert len(EVERY) <= MOST_TRIED


def test_the_meaning_of_genes_names_whose_rules_they_follow() -> None:
    assert choice(set()).describe()["builder"] == "somebody"
    own, free = study(), study()
    free.target_name = "model"
    assert own.space.fingerprint != free.space.fingerprint


def test_programs_that_are_left_out_have_no_design_that_can_be_built() -> None:
    """For all sizes of tiles of a small product: whatever is left out breaks a limit or a rule however it is folded,
    and is left out before it is compiled to the end."""
    searched: dse.Study = study(size=1024)
    builder = Buildable(searched.target, searched.device, dse.Buffering(output_depth=2))
    left_out = 0
    for params in searched.parameters.assignments():
        hopeless = is_hopeless(partial(searched.programs.load, params, builder))
        program = searched.programs.load(params)
        assert hopeless == is_hopeless(partial(builder.program, program))
        if hopeless:
            left_out += 1
            folds = itertools.islice(searched.folds.folds(program), 3)
            assert all(searched.check(dse.Design(program, f, dse.Buffering(output_depth=2), NPU)) for f in folds)
    assert 50 < left_out < 125
