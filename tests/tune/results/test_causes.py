"""Why designs died, in words of choices."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.tune.results.causes import ABSENT, causes_of, choices_of
from allo_dse.tune.store.record import Record, json_text

FOLD: dict[str, Any] = {
    "kernels": [{"kernel": "k", "axes": [{"spatial": 4, "pattern": "block", "how": "chain"}], "order": [1, 0]}],
    "chains": [["k", "l"]],
}


def record(params: dict[str, Any], *dies_of: str, fold: Any = None, **fields: Any) -> Record:
    violations = [{"constraint": name, "text": ""} for name in dies_of]
    status = "violation" if dies_of else "ok"
    return Record(
        **{"number": 0, "key": "", "status": status, "violations": violations, **fields},
        genes_json=json_text({}),
        params_json=json_text(params),
        fold_json=json_text(fold),
    )


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"tile": rng.choice([32, 64, 128, 256]), "cores": rng.choice([1, 2, 4])} for _ in range(count)]


@given(st.integers(0, 100))
def test_the_choice_that_kills_is_named_with_the_values_that_do(seed: int) -> None:
    designs = drawn(200, seed)
    records = [
        record(d, *(["core_memory"] if d["tile"] >= 128 else []), *(["dma"] * (d["cores"] == 4))) for d in designs
    ]
    causes = {cause.name: cause for cause in causes_of(records)}
    assert causes["core_memory"].choice == "tile"
    assert dict(causes["core_memory"].values) == {128: 1.0, 256: 1.0}
    assert str(causes["dma"]) == f"dma rules out {causes['dma'].count} of 200 designs: cores=4 (100 %)"
    assert [c.count for c in causes_of(records)] == sorted((c.count for c in causes.values()), reverse=True)


@given(st.integers(0, 100))
def test_chance_names_no_choice(seed: int) -> None:
    rng = random.Random(seed)
    records = [record(d, *(["core_memory"] * (rng.random() < 0.5))) for d in drawn(1000, seed)]
    (cause,) = causes_of(records)
    assert (cause.choice, cause.worst_values) == ("", "")


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"status": "infeasible", "constraints": {"small": 0.5, "cheap": 0.0}}, "small"),
        ({"status": "failed", "error": "SimulationError: deadlock after 9"}, "SimulationError: deadlock after N"),
    ],
)
def test_constraints_and_failures_are_causes_too(fields: dict[str, Any], cause: str) -> None:
    deep = [record({}, fold=FOLD, **fields)] * 5
    (found,) = causes_of([*deep, *[record({"tile": 8})] * 5])
    assert (found.name, found.count, found.looked_at) == (cause, 5, 10)
    assert found.choice in {"tile", "k.axis0.nodes", "k.with", "l.with", "k.order", "k.axis0.how", "k.axis0.pattern"}
    assert found.values[0][1] == 1.0
    assert {value for value, _ in found.values} == {
        ABSENT if found.choice == "tile" else choices_of(deep[0])[found.choice]
    }


def test_folds_have_names() -> None:
    assert choices_of(record({"tile": [1, 2]}, fold=FOLD)) == {
        "tile": "[1, 2]", "k.axis0.nodes": 4, "k.axis0.how": "chain", "k.axis0.pattern": "block", "k.order": "1 0",
        "k.with": "k l", "l.with": "k l",
    }  # fmt: skip
