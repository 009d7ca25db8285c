"""Pipelined loops are marked for the lowering, with their numbers left as cost sites."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.simulator.codegen.bodies import lower_body
from allo_dse.simulator.codegen.outline import mark_pipelines
from allo_dse.simulator.codegen.signature import Body, Pipeline

BODY = """
func.func @work(%in: index, %out: index) {
  affine.for %i = 0 to 8 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    "df.put"(%out, %v) {op = 1, stage = 4 : i64} : (index, i32) -> ()
  } {df.ii = 2 : i64, df.depth = 3 : i64}
  affine.for %i = 0 to 8 {
    %v = "df.get"(%in) {op = 2} : (index) -> i32
  }
  return
}"""


def test_loops_get_marks_and_operations_their_places(golden: Callable[[str, str], None]) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(BODY)
        pipelines = mark_pipelines(module.body.operations[0].operation)
        assert pipelines == (Pipeline(ii=2, depth=3, stages=(None, 4), is_put=(False, True)),)
        assert module.operation.verify()
        golden("pipelined.mlir", str(module))


def test_sites_of_pipelines_count_as_cost_sites() -> None:
    with new_context(), ir.Location.unknown():
        signature = lower_body(Body("work", BODY), "body1").signature
    assert signature.cost_sites == 5
    assert len(signature.pipelines) == 1


def test_pipelines_in_pipelines_are_refused() -> None:
    text = BODY.replace("%v =", "affine.for %j = 0 to 2 {\n} {df.ii = 0 : i64, df.depth = 0 : i64}\n%v =", 1)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        with pytest.raises(SimulationError, match="unroll"):
            mark_pipelines(module.body.operations[0].operation)
