"""Programs in which data decides on loops, indices and streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.eval.equivalence.compare import Side
from allo_dse.eval.equivalence.domains import DegreeDomain, FieldDomain, random_prime
from allo_dse.eval.equivalence.path_comparison import PathDomain, PathLog
from allo_dse.mapper.fold.fold_space import fold_choices

from . import programs

PROGRAMS = {step: dse.load_program(programs.searched(step)) for step in (2, 3)}
CLASSIFIED = dse.load_program(programs.classified())
DEGREES = DegreeDomain(FieldDomain(random_prime(0)))


def drawn(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "A": rng.integers(-128, 128, 16).astype(np.int8),
        "U": rng.integers(0, 256, 16).astype(np.uint8),
        "F": rng.random(16).astype(np.float16),
        "C": np.zeros(1, np.int64),
    }


@settings(max_examples=12)
@given(st.lists(st.integers(-40, 40), min_size=8, max_size=8))
def test_programs_that_differ_on_a_path_differ_there_only(values: list[int]) -> None:
    inputs, found = {"A": np.array(values, np.int32)}, []
    for program in PROGRAMS.values():
        left = np.zeros(8, np.int32)
        dse.simulate(program, inputs["A"].copy(), left)
        found.append(left.tolist())  # on one path it is A less a constant
    assert dse.equivalent(PROGRAMS[2], PROGRAMS[3], inputs=inputs).equal == (found[0] == found[1])
    assert dse.equivalent(PROGRAMS[3], PROGRAMS[3], inputs=[inputs, inputs]).paths == 2


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_the_numbers_of_a_path_are_those_of_a_run(seed: int) -> None:
    arrays = drawn(seed)
    log = PathLog(DEGREES)
    words = [log.enter(np.ones(a.shape, np.int64), a) for a in arrays.values()]
    Side(CLASSIFIED.vmg, {}).run(PathDomain(DEGREES), words, 0, None, log=log)
    dse.simulate(CLASSIFIED, *arrays.values())
    assert log.words[words[-1], 2].tolist() == arrays["C"].tolist()


def test_indices_and_streams_that_data_decides_on() -> None:
    program, inputs = dse.load_program(programs.gathered()), {"At": np.array([0, 7, 3, 2, 1, 1, 6, 5], np.int8)}
    assert dse.equivalent(program, dse.load_program(programs.gathered(4)), inputs=inputs)
    found = dse.equivalent(program, dse.load_program(programs.gathered(more=1)), inputs=inputs)
    assert found.difference is not None
    assert (found.difference.index, found.difference.elements) == ((0,), 4)
    for fold in list(fold_choices(program))[1:]:
        assert dse.equivalent(program, program.vmg.fold(fold), inputs=inputs)


def test_it_says_how_many_paths_were_compared() -> None:
    inputs = {"A": np.arange(8, dtype=np.int32)}
    assert ", on the path of 1 set of inputs: error" in str(dse.equivalent(PROGRAMS[3], PROGRAMS[3], inputs=inputs))
    with pytest.raises(dse.StudyError, match="has no tensor 'X'"):
        dse.equivalent(PROGRAMS[3], PROGRAMS[3], inputs={"X": np.zeros(8, np.int32)})
