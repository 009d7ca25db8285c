"""The studies, and the mappings that people write by hand for them."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse import NpuSimulator, check
from allo_dse.eval.verify import verify_design
from allo_dse.lang import install
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.space.design import Design
from allo_dse.tune.show.reporters import QuietReporter

from ..support.short_searches import few_designs_are_listed

install()

from studies import attention_npu
from studies.hand_made import HAND_MADE, attention

SMALL: dict[str, Any] = {
    "attention_npu": {"length": 256},
    "ffn_npu": {"tokens": 256, "hidden": 256},
    "mlp_npu": {"hidden": 256},
    "vector_add_npu": {"length": 65536},
    "reduction_npu": {"rows": 256, "columns": 256},
    "resnet_npu": {"images": 1, "height": 4},
    "elementwise_npu": {"op": "silu_mul", "length": 65536},
    "norm_npu": {"rows": 64, "width": 64},
    "rope_npu": {"rows": 128},
    "gemv_npu": {"rows": 128, "width": 256},
    "gemm_two_level_npu": {"size": 64, "out": "bf16"},
    "multihead_attention_npu": {"length": 128, "heads": 4, "kv_heads": 2, "causal": 1},
}


def study_of(name: str, **arguments: object) -> Any:
    return importlib.import_module(f"studies.{name}").study(**arguments)


@cache
def by_hand(name: Any) -> tuple[Any, Design]:
    """A study, and the mapping by hand of one of its programs."""
    study = study_of(name)
    return study, HAND_MADE[name].design(study)


@pytest.mark.parametrize("name", HAND_MADE)
def test_the_mapping_by_hand_is_generated_fits_and_exports(name: Any) -> None:
    study, design = by_hand(name)
    assert study.folds.contains(design.program, design.fold)
    genes = study.space.encode(design)
    assert study.space.decode_genes(genes).key == design.key
    assert check(design) == [] or study.check(design) == []  # targets count host buffers in their own ways
    assert VMG.of(design.program).apply(design.mapping_primitives).key == design.vmg.key
    namespace: dict[str, Any] = {}
    exec(design.vmg.mapping_source(), namespace)
    assert namespace["mapping_primitives"]() == design.mapping_primitives


@pytest.mark.parametrize("name", [name for name in HAND_MADE if name != "gemm_npu"])
def test_the_mapping_by_hand_computes_what_the_program_does(name: Any) -> None:
    study, design = by_hand(name)
    found = verify_design(design, reference=study.reference, verify_with=study.verify_with)
    assert found.ok, found.message


@pytest.mark.parametrize("name", SMALL)
def test_a_short_search_is_verified(name: Any, tmp_path: Path) -> None:
    with few_designs_are_listed():
        result = study_of(name, **SMALL[name]).run(trials=12, seed=0, run_dir=tmp_path, progress=QuietReporter())
    assert len(result.pareto)
    assert result.pareto["verified"].eq("yes").all()


@pytest.mark.parametrize(("length", "trials"), [(64, 3000), (128, 30)])
def test_attention_is_at_least_as_fast_as_by_hand(length: int, trials: int, tmp_path: Path) -> None:
    """The smaller space is searched to its end."""
    study = attention_npu.study(length=length)
    by_hand = NpuSimulator().evaluate(attention(columns=min(4, length // 32)).design(study)).latency_us
    result = study.run(trials=trials, seed=0, run_dir=tmp_path, verify=False, progress=QuietReporter())
    assert result.best("latency_us").metrics.latency_us <= by_hand


def test_references_of_the_studies() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((6, 4)) for _ in range(3))
    rows = [np.exp(row) / np.exp(row).sum() for row in q @ k.T / 2]
    assert np.allclose(attention_npu.reference(q, k, v), np.array(rows) @ v)


def test_the_model_orders_the_resnet_design_points_as_measured(tmp_path: Path) -> None:
    from benchmarks.resnet_points import POINTS, modelled_ms

    modelled = [modelled_ms(point, tmp_path) for point in POINTS]
    assert modelled == sorted(modelled, reverse=True)
    assert [point.measured_ms for point in POINTS] == sorted((p.measured_ms for p in POINTS), reverse=True)


@pytest.mark.parametrize("name", ["gemv_npu", "norm_npu", "rope_npu"])
def test_what_searches_find_is_what_the_docs_say(name: str) -> None:
    from benchmarks.study_quality import measure

    assert measure(name) in (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
