"""Pairs of a cheap evaluator and an expensive one, tabulated: what promotion to a rung is measured on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import allo_dse as dse
from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.lang import install
from allo_dse.space.genes import Gene, Genes
from benchmarks.kernel_spaces import Floats, KernelSpace, arrays, interacting, pipelines, stencil_in_time

install()

from studies import gemm_npu, polybench_fpga

TRIALS, MET = 900, 300  # of the cheap search; of its designs, those that a case has
DRAWN, SELECTED, OF = 200, 200, 4000  # of a synthetic space: any designs, and the best of so many


@dataclass(frozen=True)
class Case:
    """Designs and what both evaluators say of them.

    Attributes:
        genes, ranges: of the designs, and of their genes.
        cheap, true: losses, (designs, objectives); the latter infinite where the expensive evaluator fails.
    """

    genes: Sequence[Genes]
    ranges: Mapping[str, Gene]
    cheap: Floats
    true: Floats


class Bound:
    """A cost model: what an evaluator's bounds say of a design."""

    name, version, quick = "bound", "1", True

    def __init__(self, evaluator: Any) -> None:
        self._bounds = evaluator.bounding()

    def evaluate(self, design: dse.Design) -> dse.Metrics:
        found = self._bounds(design, self._bounds.levels - 1)
        return dse.Metrics(**{name: low for name, (low, _) in found.items()})


def searched(study: dse.Study, true: Callable[[dse.Design], dse.Metrics]) -> Case:
    """The designs that a search by a study's own evaluator has met, and what another says of them."""
    with tempfile.TemporaryDirectory() as folder:
        result = study.run(TRIALS, seed=0, run_dir=folder, progress="quiet", verify=False, sampler="evolution")
    records = [record for record in result.records if record.status == "ok"]
    signs = np.array([objective.sign for objective in study.objectives])
    cheap = signs * np.array([list((record.values or {}).values()) for record in records])
    losses = np.full_like(cheap, np.inf)
    for n, record in enumerate(records):
        candidate = study.space.decode_genes(record.genes)
        assert candidate is not None
        try:
            metrics = true(candidate.design)
        except AlloDseError:
            continue
        losses[n] = signs * [objective.value(metrics) for objective in study.objectives]
    return Case([record.genes for record in records], study.space.genes, cheap, losses)


@cache
def npu_board() -> Case:
    """GEMM on a Ryzen AI NPU, and on the same NPU as another group measured it."""
    board = dse.Device.load("npu1_4col").with_options(board="sb")
    return searched(gemm_npu.study(size=1024), lambda d: dse.NpuSimulator().evaluate(d.on(board)))


@cache
def npu_generation() -> Case:
    """GEMM on XDNA1, and on as many cores of XDNA2: other kernels, wider vectors, other DRAM."""
    study, other = gemm_npu.study("bf16", size=1024), dse.Device.load("npu2_4col")
    return searched(study, lambda d: dse.NpuSimulator().evaluate(d.on(other)))


@cache
def npu_bound() -> Case:
    """GEMM on a Ryzen AI NPU: the cost model of an exact search, and the simulator."""
    study = gemm_npu.study("bf16", size=1024, device="npu2_4col")
    study.measured_by(partial(Bound, dse.NpuSimulator()))
    return searched(study, dse.NpuSimulator().evaluate)


@cache
def fpga_chip() -> Case:
    """A PolyBench kernel on FPGAs: the cost model of an exact search on one, and the simulator on a smaller one."""
    study, other = polybench_fpga.study("gemm"), dse.Device.load("z7045")
    study.measured_by(partial(Bound, dse.FpgaSimulator()))

    def true(design: dse.Design) -> dse.Metrics:
        moved = design.on(other)
        if study.check(moved):
            raise StudyError("it does not fit")
        return dse.FpgaSimulator().evaluate(moved)

    return searched(study, true)


def some_of(every: Callable[[], Case], seed: int) -> Case:
    """Any designs of a case."""
    case = every()
    rows = np.random.default_rng((9, seed)).permutation(len(case.genes))[:MET]
    return Case([case.genes[row] for row in rows], case.ranges, case.cheap[rows], case.true[rows])


def distorted(space: KernelSpace, seed: int) -> Floats:
    """True losses of a synthetic space, which leave out of the cheap ones: a limit that one parameter moves, a cliff,
    what pairs of values and single designs do, and failures in a corner of the space; (designs, objectives)."""
    r = np.random.default_rng((7, seed))
    positions, true = space.positions, space.losses.copy()
    shares = positions / np.maximum(1, positions.max(0))
    a, b, c, d = r.choice(positions.shape[1], 4, replace=False)
    known = np.isfinite(true[:, 0])
    limits = np.quantile(true[known, 0], 0.1) * r.uniform(0.5, 2, positions[:, a].max() + 1)
    true[:, 0] = np.maximum(true[:, 0], limits[positions[:, a]])
    true[:, 0] *= np.where(shares[:, b] > r.uniform(0.3, 0.7), r.uniform(1.3, 2.5), 1)
    for column in true.T:
        effects = r.normal(0, 0.15, (positions[:, c].max() + 1, positions[:, d].max() + 1))
        column *= np.exp(effects[positions[:, c], positions[:, d]] + r.normal(0, 0.03, len(column)))
    true[(shares[:, a] + shares[:, c] > r.uniform(0.9, 1.3)) & (shares[:, d] < r.uniform(0.4, 0.9))] = np.inf
    return true


def synthetic(family: Callable[[int], KernelSpace], seed: int) -> Case:
    """Any designs of a space, and the best of many by the cheap losses."""
    with np.errstate(all="ignore"):
        space = family(seed)
    some = np.random.default_rng((8, seed)).permutation(np.flatnonzero(np.isfinite(space.losses).all(1)))[:OF]
    best = some[np.argsort(np.log(space.losses[some]).sum(1))[:SELECTED]]
    rows = np.unique(np.concatenate((some[:DRAWN], best)))
    genes = [dict(zip(space.values, row, strict=True)) for row in space.positions[rows].tolist()]
    ranges = {name: Gene(0, len(of) - 1) for name, of in space.values.items()}
    return Case(genes, ranges, space.losses[rows], distorted(space, seed)[rows])


CASES: dict[str, Callable[[int], Case]] = {
    **{case.__name__: partial(some_of, case) for case in (npu_board, npu_generation, npu_bound, fpga_chip)},
    **{family.__name__: partial(synthetic, family) for family in (stencil_in_time, interacting, pipelines, arrays)},
}
