"""A study without a compiler, a device or a simulator: GEMM on a mesh [k, m, n], folded and priced by formulas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from allo_dse.backends import register_backend
from allo_dse.common.errors import AlloDseError
from allo_dse.eval.backend import Asked, Backend, Choices
from allo_dse.eval.evaluator import Bounds, Metrics
from allo_dse.eval.target import Target
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.choices.fold_genes import AxisOptions, KernelOptions, KernelPlan
from allo_dse.space.choices.folds import FoldChoice
from allo_dse.space.choices.shared import OutputDepth
from allo_dse.space.params import divisors
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.search.tally import Tally
from allo_dse.tune.store.record import Record, Verification
from allo_dse.tune.study import Study

SIZE = 2048


@dataclass(frozen=True, eq=False)
class FakeProgram:
    name: str
    params: dict[str, Any]
    mesh: tuple[int, int, int]
    digest: str
    apart: bool = False
    rewrites: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[SimpleNamespace]:
        return (SimpleNamespace(name="gemm", mesh=self.mesh, classes=()),)

    @property
    def task_count(self) -> Any:
        return math.prod(self.mesh)

    @property
    def vmg(self) -> FakeGraph:
        return FakeGraph()


class FakeGraph:
    mapping_primitives = [("chain", ["gemm_0_0_0", "gemm_1_0_0"])]

    def fold(self, fold: Any) -> FakeGraph:
        return self

    def mapping_source(self) -> Any:
        return f"def mapping_primitives():\n    return {self.mapping_primitives!r}\n"


class FakePrograms:
    def __init__(self, salt: str = "") -> None:
        self.salt = salt

    def load(self, params: Any, watch: Any = None) -> FakeProgram:
        return FakeProgram("gemm", dict(params), (params["Pk"], params["Pm"], params["Pn"]), f"gemm{self.salt}")

    def pack(self, program: Program) -> Any:
        return None

    def unpack(self, params: Any, packed: Any) -> None:
        raise AssertionError("nothing was packed")


@cache
def _options(number: int, extent: int, max_nodes: int) -> tuple[AxisFold, ...]:
    options = []
    for spatial in divisors(extent, at_most=min(extent, max_nodes)).values:
        if spatial == extent:
            options.append(AxisFold(extent))
        elif number == 0:
            options.append(AxisFold(spatial, "block", "chain"))
        else:
            options.append(AxisFold(spatial, "block"))
            if spatial > 1:
                options.append(AxisFold(spatial, "cyclic"))
    return tuple(options)


@cache
def _kernels(mesh: tuple[int, int, int], max_nodes: int) -> tuple[KernelOptions, ...]:
    axes = tuple(AxisOptions(_options(number, extent, max_nodes)) for number, extent in enumerate(mesh))
    return (KernelOptions("gemm", axes),)


@cache
def _fold(mesh: tuple[int, int, int], axes: tuple[AxisFold, ...], order: tuple[int, ...]) -> MeshFold:
    return MeshFold((KernelFold("gemm", axes, order).normalised(mesh),))


@cache
def _folds(mesh: tuple[int, int, int], max_nodes: int) -> tuple[MeshFold, ...]:
    axes = itertools.product(*(_options(number, extent, max_nodes) for number, extent in enumerate(mesh)))
    found = dict.fromkeys(_fold(mesh, one, order) for one in axes for order in ((1, 2), (2, 1)))
    return tuple(fold for fold in found if fold.node_count <= max_nodes)


class FakeFolds(FoldChoice):
    """Mesh axis 0 chains (block), axes 1 and 2 bundle (block or cyclic). Every study of a process has the same."""

    def kernels(self, program: Any) -> Any:
        return _kernels(program.mesh, self.max_nodes)

    def fold(self, program: Any, plans: Any) -> MeshFold | None:
        fold = _fold(program.mesh, plans[0].axes, plans[0].order)
        return fold if fold.node_count <= self.max_nodes else None

    def plans(self, fold: Any) -> Any:
        return [KernelPlan(k.axes, k.order) for k in fold.kernels]

    def folds(self, program: Any) -> Iterator[MeshFold]:
        return iter(_folds(program.mesh, self.max_nodes))

    def fold_count(self, program: Any, limit: int) -> Any:
        return len(_folds(program.mesh, self.max_nodes))


@dataclass(frozen=True)
class FakeViolation:
    constraint: str
    needed: int
    limit: int

    def __str__(self) -> Any:
        return f"{self.constraint}: needs {self.needed}, has {self.limit}"


def tile_bytes(design: Any) -> Any:
    k, m, n = (design.program.params["size"] // extent for extent in design.program.mesh)
    return m, k, n, 2 * (2 * m * k + 2 * k * n + design.buffering.output_depth * m * n) + 3328


def check(design: Any) -> Any:
    used = tile_bytes(design)[3]
    return [FakeViolation("core data memory", used, 65536)] if used > 65536 else []


class FakeEvaluator:
    """A roofline with burst efficiency, reuse by loop order, and per-task cost."""

    name = "formula"
    version = "1"

    def evaluate(self, design: Any) -> Metrics:
        m, k, n, used = tile_bytes(design)
        size = design.program.params["size"]
        fold = design.fold.kernels[0]
        sk, sm, sn = (axis.spatial for axis in fold.axes)
        cores = sk * sm * sn
        tasks = math.prod(design.program.mesh) // cores
        compute = tasks * (m * k * n / (0.85 * 64) + 2.0 * m * n + 400)
        tiles = math.prod(design.program.mesh)
        inner = fold.order[-1] if fold.order else 2
        a_moves = tiles / sn / (2 if inner == 2 and fold.axes[0].spatial == design.program.mesh[0] else 1)
        b_moves = tiles / sm
        run_a, run_b, run_c = k * 2, n * 2, n * 2
        cyclic = sum(axis.pattern == "cyclic" for axis in fold.axes)
        dram = (
            a_moves * m * k * 2 * (1 + 64 / run_a) + b_moves * k * n * 2 * (1 + 64 / run_b)
            + size * size * 2 * sk * (1 + 64 / run_c)
        ) * (1 - 0.01 * cyclic)  # fmt: skip
        shares = {"core": compute, "dram": dram / 17.0}
        total = max(shares.values()) + (0.25 if design.buffering.output_depth == 1 else 0.02) * m * n * 2
        return Metrics(
            latency_us=total / 1e3 + 150,
            pe_count=cores,
            local_memory_bytes=used,
            dram_bytes=int(dram),
            bound={k: v / total for k, v in shares.items()},
            bottleneck=max(shares, key=shares.__getitem__),
        )


class FakeBackend(Backend):
    """A kind of device with depths of output FIFOs, and nothing else."""

    kind = "fake"
    device_model: Any = SimpleNamespace

    def map(self, *_: Any) -> Any:
        raise AlloDseError("fake designs have no mapping")

    def evaluator(self, device: Any) -> Any:
        return FakeEvaluator()

    def choices(self, asked: Asked, target: Target, device: Any) -> Choices:
        return Choices((), [OutputDepth(asked.output_depths)], Buffering(output_depth=min(asked.output_depths)))


register_backend(FakeBackend())


def fake_study(
    name: str = "fake",
    *,
    size: int = SIZE,
    evaluator: Any = FakeEvaluator,
    salt: str = "",
    max_nodes: int = 16,
    at_most: int = 64,
    **changes: Any,
) -> Study:
    tiles = divisors(size, at_least=max(1, size // 256), at_most=at_most)
    arguments = {
        "program": lambda **_: None,
        "params": {"size": size, "Pm": tiles, "Pn": tiles, "Pk": tiles},
        "device": SimpleNamespace(name="fake_npu", key="0", family="fake"),
        "objectives": [minimize("latency_us"), minimize("pe_count"), minimize("local_memory_bytes")],
        "evaluator": evaluator,
        "check": check,
        "folds": FakeFolds(max_nodes),
        "programs": FakePrograms(salt),
        "verifier": lambda design: Verification(ok=True, message="", seconds=0.0),
    }
    return Study(name, **{**arguments, **changes})


class Looseness:
    """Bounds of times that are off by a share that hangs on the design, and get tighter; exact ones of the rest."""

    levels = 2
    metrics = frozenset({"latency_us", "pe_count", "local_memory_bytes", "dram_bytes"})

    def __init__(self, loose: float) -> None:
        self._loose = loose
        self.asked = [0, 0]

    def __call__(self, design: Any, level: int) -> Bounds:
        self.asked[level] += 1
        metrics = FakeEvaluator().evaluate(design)
        part = self._loose * (1 + int(design.key[:4], 16) / 0xFFFF) / (level + 1)
        if int(design.key, 16) % 17 == level:
            raise AlloDseError("nothing is known of this one")
        times = {
            name: (metrics[name] / (1 + part), metrics[name] * (1 + part)) for name in ("latency_us", "dram_bytes")
        }
        return times | {name: (metrics[name], metrics[name]) for name in ("pe_count", "local_memory_bytes")}


def add(tally: Tally, record: Record, values: tuple[float, ...] | None) -> None:
    """Count a design that is in no log."""
    tally.add(record, values, -1)
    tally.records.promoted[tally.records.rows[record.key]] = record
