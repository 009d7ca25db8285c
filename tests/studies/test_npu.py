"""The studies that come with the project, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.common.errors import StudyError
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.program import load_program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design
from allo_dse.space.params import choices
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import Study

from ..eval.designs import gemm_fold
from ..support.commands import allo_tune
from ..support.values import present

install()

from studies.gemm_npu import ELEMENT_TYPES, gemm, study

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("dtype", ["i8", "i16", "bf16"])
def test_the_hand_written_mapping_is_in_the_space_and_passes(dtype: str) -> None:
    searched, element = study(dtype), ELEMENT_TYPES[dtype]
    program = load_program(gemm, TyI=element, TyO=element)
    design = Design(program, gemm_fold(), Buffering(output_depth=2), NpuDevice.load("npu1_4col"))
    candidate = present(searched.space.decode_genes(searched.space.encode(design)))
    assert candidate.design.key == design.key
    assert design.mapping.violations == ()


def test_programs_none_of_which_can_be_built_are_explained(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="none of 125 programs can be built: ") as error:
        study(size=16384).run(5, run_dir=tmp_path / "run", progress="quiet")
    assert " as target 'allo' does not build programs of more than 262,144 tasks; " in error.value.message
    assert " as an array has " in error.value.message  # more streams than a program may have


@pytest.mark.parametrize("sampler", ["auto", "evolution"])
def test_programs_that_do_not_compile_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sampler: str
) -> None:
    params = {"M": 64, "N": 64, "K": 64, "Pm": choices([8, 12, 16, 24]), "Pn": 8, "Pk": 8}
    searched = Study("gemm", program=gemm, params=params, objectives=[minimize("latency_us")])
    searched.run(5, run_dir=tmp_path / "run", progress="plain", sampler=sampler, verify=False)
    said = (
        "2 programs do not compile and are left out: 2 as dimension 0 of A is 64, not divisible by mesh axis 1 of size"
    )
    assert said in capsys.readouterr().err


def test_the_search_finds_something_at_least_as_fast(tmp_path: Path) -> None:
    program = load_program(gemm)
    by_hand = Design(program, gemm_fold(), Buffering(output_depth=2), NpuDevice.load("npu1_4col"))
    result = study("i16").run(trials=400, seed=2, run_dir=tmp_path, verify=False, progress=QuietReporter())
    assert result.best("latency_us").metrics.latency_us <= NpuSimulator().evaluate(by_hand).latency_us


def test_the_command_tunes_verifies_and_writes_what_it_says(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = allo_tune("studies/gemm_npu.py", "--set", "size=64", "--trials", "24", "--seed", "1", "--run-dir", str(run))
    assert done.returncode == 0, done.stderr
    assert "Pareto front" in done.stdout
    front = pd.read_csv(run / "pareto.csv")
    assert front["verified"].all()
    assert {"latency_us", "pe_count", "local_memory_bytes", "Pm", "Pn", "Pk"} <= set(front.columns)
    best = run / "best" / "latency_us"
    assert "cores" in (best / "explanation.txt").read_text()
    parameters = json.loads((best / "parameters.json").read_text())
    namespace: dict[str, Any] = {}
    exec((best / "mapping.py").read_text(), namespace)
    primitives = namespace["mapping_primitives"]()
    program = load_program(gemm, M=64, N=64, K=64, **{name: parameters[name] for name in ("Pm", "Pn", "Pk")})
    folded = program.vmg.apply(primitives)
    row = front.sort_values("latency_us").iloc[0]
    assert folded.node_count == row["pe_count"]


def test_the_command_closes_a_space_and_says_so_wherever_it_is_asked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["studies/reduction_npu.py", "--sampler", "exact", "--no-verify", "--run-dir", str(run)]
    stopped = allo_tune(*command, "--trials", "2")
    assert stopped.returncode == 0, stopped.stderr
    assert "not complete: " in stopped.stdout
    done = allo_tune(*command)
    assert "complete: none of the space's 531 designs is better; " in done.stdout
    evaluated = len(pd.read_csv(run / "trials.csv"))
    assert evaluated < 60
    facts = json.loads(allo_tune("status", str(run), "--json").stdout)["certificate"]
    assert (facts["designs"], facts["open"], facts["evaluated"]) == (531, 0, evaluated)
    assert json.loads((run / "run.json").read_text())["certificate"] == facts
    assert "none of the space's 531 designs is better" in allo_tune("status", str(run)).stdout


def test_the_same_seed_gives_the_same_trials(tmp_path: Path) -> None:
    """Designs that are bred depend on the seed, and on nothing else."""
    found = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        result = study("i16", size=64).run(
            trials=60, seed=seed, sampler="evolution", run_dir=tmp_path / name, verify=False, progress=QuietReporter()
        )
        found.append(result.trials.drop(columns=[c for c in result.trials if "second" in str(c) or c == "at"]))
    one, two, other = found
    pd.testing.assert_frame_equal(one, two)
    assert list(one.key) != list(other.key)


def test_a_mistake_gets_a_hint_and_no_traceback() -> None:
    done = allo_tune("studies/gemm_npu.py", "--set", "dtyp=i8")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "dtype" in done.stderr
