"""The FPGA studies that come with the project: numbers, designs and searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.lang import install

from ..support.commands import allo_tune

install()

from allo_dse.backends.fpga.choices.auto_schedules import schedules_of
from allo_dse.mapper.fold.fold import unfolded
from studies import gemm_zcu102, polybench_fpga, systolic_fpga

from ..backends.fpga.cost import programs

SMALL: dict[str, dict[str, int]] = {
    "gemm": {"H": 4, "J": 6, "K": 8, "P": 2},
    "2mm": {"H": 4, "J": 6, "K": 8, "L": 5, "P": 2},
    "3mm": {"H": 9, "J": 6, "K": 3, "L": 4, "M": 5, "P": 3, "W": 2},
    "atax": {"M": 6, "N": 10, "P": 3, "V": 2, "W": 5},
    "bicg": {"M": 6, "N": 10, "P": 3, "V": 5, "W": 2},
    "mvt": {"N": 12, "P": 3, "V": 6, "W": 4},
    "gesummv": {"N": 10, "P": 5, "V": 2},
}


@pytest.mark.parametrize("kernel", SMALL)
def test_polybench_gives_the_numbers_of_numpy(kernel: str) -> None:
    source, _, _, reference = polybench_fpga.KERNELS[kernel]
    program = dse.load_program(source, **SMALL[kernel])
    rng = np.random.default_rng(0)
    arrays = [rng.random(tensor.shape, dtype=np.float32) for tensor in program.tensors]
    inputs = dict(zip((t.name for t in program.tensors), arrays, strict=True))
    names = reference.__code__.co_varnames[: reference.__code__.co_argcount]
    expected: Any = reference(*(inputs[name].copy() for name in names))
    dse.simulate(program, *arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    outputs = [inputs[t.name] for t in program.tensors if t.name not in names]
    for found, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("feed", ["plain", "daisy"])
def test_a_systolic_array_gives_the_numbers_of_numpy(feed: str) -> None:
    program = dse.load_program(getattr(systolic_fpga, feed), M=8, N=12, K=16, P=4)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((8, 16), (12, 16)))
    c = np.zeros((8, 12), np.int16)
    dse.simulate(program, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.int16) @ b.astype(np.int16).T)


@pytest.mark.parametrize("feed", ["plain", "daisy"])
def test_a_16x16_array_reaches_what_was_published(feed: str) -> None:
    """150 of 153.6 GOP/s at 300 MHz, with 256 DSPs."""
    study = systolic_fpga.study(feed)
    program = dse.load_program(getattr(systolic_fpga, feed), M=512, N=512, K=2048, P=16)
    assert study.schedules is not None
    schedules = schedules_of(study.schedules, study.device)
    assert schedules is not None
    *_, (last, _) = schedules.options(dse.Draft(study.device, program=program, fold=unfolded(program)))
    assert last is not None
    design = last.design()
    assert study.check(design) == []
    metrics = study.make_evaluator().evaluate(design)
    assert 150 <= metrics.throughput_gops <= 153.6
    assert metrics.dsp == 256


def test_the_search_finds_the_published_throughput(tmp_path: Path) -> None:
    found = systolic_fpga.study("plain").run(
        trials=150, seed=0, run_dir=tmp_path / "run", progress="quiet", verify=False
    )
    assert found.best("throughput_gops").metrics["throughput_gops"] >= 150


def test_a_tiled_gemm_is_searched_and_verified(tmp_path: Path) -> None:
    result = gemm_zcu102.study(size=32).run(trials=30, seed=0, run_dir=tmp_path / "run", progress="quiet")
    assert result.pareto["verified"].all()
    assert result.best("latency_us").metrics["dsp"] > result.best("dsp").metrics["dsp"]


def test_the_command_tunes_an_fpga_study(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = allo_tune(
        *("studies/polybench_fpga.py", "--set", "kernel=gesummv", "--trials", "20", "--seed", "1"),
        *("--run-dir", str(run), "--no-verify"),
    )
    assert done.returncode == 0, done.stderr
    assert "Pareto front" in done.stdout
    assert (run / "pareto.csv").exists()


def test_a_study_of_control_on_data_says_where_that_is_and_what_to_do(tmp_path: Path) -> None:
    study = dse.Study(
        "chosen", program=lambda N: programs.chosen(), params={"N": dse.choices([1, 2])}, device="u280",
        objectives=[dse.minimize("latency_cycles")], trials=2,
    )  # fmt: skip
    with pytest.raises(dse.StudyError, match="static_control") as error:
        study.run(run_dir=tmp_path / "run")
    assert "`pipe.put(x[i])`: whether this stream operation happens depends on data; use bounds" in error.value.hint
