"""The public names, as users of the package write them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
import allo_dse.simulator
from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import int16

from allo_dse.backends.npu.place.placed_design import PlacedDesign
from studies.gemm_npu import gemm

from .eval.designs import gemm_fold


def region() -> Any:
    return gemm(M=32, N=32, K=32, Pm=4, Pn=4, Pk=4)


def operands() -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (32, 32)).astype(np.int16) for _ in range(2))
    return a, b, np.zeros((32, 32), np.int16)


@pytest.mark.parametrize("package", [dse, allo_dse.simulator])
def test_every_public_name_exists(package: Any) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


def study(**given: Any) -> Any:
    return dse.Study(
        **{"name": "s", "program": gemm, "objectives": [dse.minimize("latency_us")], "params": {"Pm": 4}, **given}
    )


def test_a_study_may_begin_with_parameters_that_its_program_does_not_allow() -> None:
    assert study(params={"Pm": dse.choices([3, 4])}).first_program().params["Pm"] == 4


WRONG_CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: dse.Study(), r"^Study\(\) missing 1 required positional argument: 'name'"),  # type: ignore[call-arg]
    (lambda: study(objectve=[]), r"^Study\(\) got an unexpected keyword argument 'objectve'"),
    (lambda: study(name=3), "a study needs a name, not 3"),
    (lambda: study(objectives=dse.minimize("latency_us")), r"objectives=.* is not a list"),
    (lambda: study(params=[4, 8]), r"params=\[4, 8\] does not name parameters"),
    (lambda: study(params={"Pm": [4, 8]}), r"(?s)Pm=\[4, 8\]: a list is neither .*choices\(\[4, 8\]\)"),
    (lambda: study(device=3).device, "3 is not a device"),
    (lambda: study(device=["u280", "u55c"]).device, r"(?s)is not a device.*dse\.clock"),
    (lambda: study(evaluator="simulator").make_evaluator(), "'simulator' is not an evaluator"),
    (lambda: study(evaluator=[].append).make_evaluator(), r"(?s)append.* needs arguments.*lambda design: "),
    (lambda: study(rungs=3), r"rungs=3\) is not a list"),
    (lambda: study(where=3), r"where=3\) is not a list"),
    (lambda: study(params={"Pm": dse.choices([3, 5])}).first_program(), "not divisible by mesh axis . of size 3"),
    (lambda: study(where=lambda p: p.Q).first_program(), r"where of the study: .*no parameter 'Q'.*test_api\.py:\d+\)"),
    (lambda: study(where=lambda p: p.Pm / 0).first_program(), r"where of the study: ZeroDivisionError: .*test_api"),
    (lambda: study(extra_choices=[3]).space, "3 is not a choice"),
    (lambda: study().run(sampler=dse.EvolutionSampler), "unknown sampler <class .*EvolutionSampler"),
    (lambda: dse.load_program(region()).vmg.apply(3), "3: not a list of mapping primitives"),  # type: ignore[arg-type]
    (lambda: dse.minimize(itemgetter("latency_us")), r"minimize\(function\): needs name="),
    (lambda: dse.require("latency_us", at_most="3"), "the bound '3' is no number"),  # type: ignore[arg-type]
    (lambda: dse.require("latency_us", at_least=math.nan), "the bound nan is no number"),
    (lambda: study().run(trails=3), r"^Study.run\(\) got an unexpected keyword argument 'trails'"),
    (lambda: dse.divisors("64"), r"divisors\('64'\): a positive whole number"),  # type: ignore[arg-type]
    (lambda: dse.check("gemm", "npu2"), "check: 'gemm' is no program"),  # type: ignore[arg-type]
    (lambda: dse.check(dse.load_program(region()), 3), "3 is not a device"),  # type: ignore[arg-type]
    (lambda: dse.draw(None), "draw: None is no program"),  # type: ignore[arg-type]
    (lambda: dse.simulate(gemm), "simulate: .*gemm.* is no program"),  # type: ignore[arg-type]
    (lambda: dse.record_trace("x.npz"), "record_trace: 'x.npz' is no program"),  # type: ignore[arg-type]
    (lambda: dse.load_program(region()).vmg.chain(0, 1), "no node is called 0"),  # type: ignore[arg-type]
    (lambda: dse.load_program(region()).vmg.apply("chain"), "not a list of mapping primitives"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG_CALLS)))
def test_a_wrong_call_names_what_was_called(number: int) -> None:
    call, said = WRONG_CALLS[number]
    with pytest.raises((dse.AlloDseError, TypeError), match=said):
        call()


def test_importing_the_package_is_light() -> None:
    heavy = "optuna|ray|pandas|torch_mlir|numba"
    code = f"import sys, re, allo_dse; print([m for m in sys.modules if re.fullmatch('{heavy}', m)])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("target", ["simulator", "llvm"])
def test_build_and_run(target: str) -> None:
    a, b, c = operands()
    module = df.build(region(), target=target)
    module(a, b, c)
    assert np.array_equal(c, a @ b)
    assert module.result.cycles > 0


def test_the_default_target_and_customize_run_too() -> None:
    for module in (df.build(region()), allo.customize(region()).build()):
        a, b, c = operands()
        module(a, b, c)
        assert np.array_equal(c, a @ b)


def test_build_takes_mapping_primitives_and_says_that_it_simulates(capsys: pytest.CaptureFixture[str]) -> None:
    program = dse.load_program(region())
    primitives = program.vmg.fold(gemm_fold(1, 2, 2)).mapping_primitives
    module = df.build(region(), target="aie", mapping_primitives=primitives, device_type="npu1_4col", profile=True)
    a, b, c = operands()
    module(a, b, c)
    assert np.array_equal(c, a @ b)
    assert len(module.vmg.nodes) == 4
    assert "runs the folded design in the simulator" in capsys.readouterr().out


def test_unknown_targets_are_named() -> None:
    with pytest.raises(dse.ProgramError, match=r"unknown target 'gpu'(.|\n)*known targets: .*simulator"):
        df.build(region(), target="gpu")


def test_simulate_takes_programs_graphs_and_designs() -> None:
    program = dse.load_program(region())
    design = dse.Design(program, gemm_fold(1, 2, 2), dse.Buffering(), dse.Device.load("npu1_4col"))
    cycles = []
    for what in (program, program.vmg, design):
        a, b, c = operands()
        cycles.append(dse.simulate(what, a, b, c).cycles)
        assert np.array_equal(c, a @ b)
    assert cycles[0] == cycles[1] < cycles[2]
    assert dse.simulate(program).cycles == cycles[0]


def test_check_explains_what_does_not_fit() -> None:
    program = dse.load_program(gemm)
    (violation,) = dse.check(program, "npu1_4col")
    assert str(violation) == "compute tiles on npu1_4col: needs 32,768, has 16 (4 columns of 4 cores)"
    design = dse.Design(program, gemm_fold(), dse.Buffering(), dse.Device.load("npu1_4col"))
    assert dse.check(design) == []
    assert dse.check(design, "npu1_1col") != []
    with pytest.raises(dse.AlloDseError, match="check needs a device"):
        dse.check(program.vmg)


def test_place_and_draw_take_programs_graphs_and_designs(tmp_path: Path) -> None:
    program = dse.load_program(region())
    device = dse.Device.load("npu1_4col")
    design = dse.Design(program, gemm_fold(1, 2, 2), dse.Buffering(), device)
    placed = dse.place(design)
    assert isinstance(placed, PlacedDesign)
    assert placed == dse.place(design.vmg, "npu1_4col")
    assert isinstance(dse.place(program, device), dse.Infeasible)
    assert dse.draw(placed, tmp_path / "array.svg") == (tmp_path / "array.svg").read_text()
    assert dse.draw(program) == dse.draw(program.vmg) != dse.draw(design)
    assert dse.draw(program)._repr_html_() == dse.draw(program)
    assert repr(program.vmg).startswith(f"VMG({program.name!r}, ")
    assert repr(design).startswith(f"Design({design.key[:8]}, ")
    with pytest.raises(dse.AlloDseError, match="place needs a device"):
        dse.place(program)


def test_designs_have_stable_keys() -> None:
    program = dse.load_program(gemm, TyI=int16, TyO=int16)
    device = dse.Device.load("npu1_4col")
    first = dse.Design(program, gemm_fold(), dse.Buffering(), device)
    again = dse.Design(dse.load_program(gemm), gemm_fold(), dse.Buffering(), device)
    assert first.key == again.key
    others = [
        dse.Design(program, gemm_fold(1, 2, 2), dse.Buffering(), device),
        dse.Design(program, gemm_fold(), dse.Buffering(output_depth=1), device),
        dse.Design(program, gemm_fold(), dse.Buffering(), device.with_options(clock_ghz=2.0)),
        dse.Design(dse.load_program(gemm, Pm=16), gemm_fold(), dse.Buffering(), device),
    ]
    assert len({first.key, *(other.key for other in others)}) == 5


def test_running_a_program_and_a_small_study_do_without_tables(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom allo_dse.lang import install\ninstall()\nimport allo_dse as dse\n"
        "from studies.gemm_npu import gemm\n"
        "dse.simulate(dse.load_program(gemm, M=8, N=8, K=8, Pm=2, Pn=2, Pk=1))\n"
        "from studies.vector_add_npu import study\n"
        f"result = study().run(3, run_dir={str(tmp_path / 'run')!r}, progress='quiet')\n"
        "assert result.best().placement.tiles\n"
        "print([name for name in ('pandas', 'optuna', 'ray', 'ortools.sat') if name in sys.modules])"
    )
    root = Path(__file__).parents[1]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
