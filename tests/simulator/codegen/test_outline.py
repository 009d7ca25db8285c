"""Loop nests without stream operations leave the coroutine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.simulator.codegen.outline import outline_nests
from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import compile_bodies
from allo_dse.simulator.network.network import NetworkBuilder

BODY = """
func.func @work(%pid: index, %x: memref<4x4xi32, strided<[?, ?], offset: ?>>, %in: index) {
  %c2 = arith.constant 2 : i32
  %zero = arith.constant 0 : i32
  affine.for %r = 0 to 2 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    %sum = affine.for %i = 0 to 4 iter_args(%a = %zero) -> i32 {
      %b = affine.for %j = 0 to 4 iter_args(%acc = %a) -> i32 {
        %e = memref.load %x[%i, %j] : memref<4x4xi32, strided<[?, ?], offset: ?>>
        %p = arith.muli %e, %c2 : i32
        %q = arith.muli %p, %v : i32
        %s = arith.addi %acc, %q : i32
        affine.yield %s : i32
      }
      affine.yield %b : i32
    }
    affine.for %i = 0 to 4 {
      memref.store %sum, %x[%r, %i] : memref<4x4xi32, strided<[?, ?], offset: ?>>
    }
  }
  return
}"""


def test_a_nest_becomes_a_function_of_what_it_uses(golden: Callable[[str, str], None]) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(BODY)
        outline_nests(module, module.body.operations[0].operation)
        assert module.operation.verify()
        golden("outlined.mlir", str(module))


SOURCE = """
func.func @source(%out: index) {
  %three = arith.constant 3 : i32
  %five = arith.constant 5 : i32
  "df.put"(%out, %three) {op = 0} : (index, i32) -> ()
  "df.put"(%out, %five) {op = 1} : (index, i32) -> ()
  return
}"""


def test_outlined_nests_compute_the_same() -> None:
    engine = compile_bodies([Body("work", BODY), Body("source", SOURCE)])
    x = np.arange(16, dtype=np.int32).reshape(4, 4)
    expected = x.copy()
    for r, v in enumerate([3, 5]):
        expected[r] = 2 * v * expected.sum()
    b = NetworkBuilder()
    stream = b.stream(1, token_bytes=4)
    b.tasks("source", engine.signatures["source"].words(1, [stream]))
    b.tasks("work", engine.signatures["work"].words(1, [0, Tiles(x, 0, (4, 1)), stream]))
    assert engine.run(b.build()).finished
    np.testing.assert_array_equal(x, expected)


COPIES = """
func.func @copies(%x: memref<4x4xi32, strided<[?, ?], offset: ?>>, %in: index) {
  %one = arith.constant 1 : i32
"""
COPY = """
  %v{n} = "df.get"(%in) {{op = {n}}} : (index) -> i32
  affine.for %i = 0 to 4 {{
    affine.for %j = 0 to 4 {{
      %e = memref.load %x[%i, %j] : memref<4x4xi32, strided<[?, ?], offset: ?>>
      %s = arith.addi %e, %v{n} : i32
      memref.store %s, %x[%i, %j] : memref<4x4xi32, strided<[?, ?], offset: ?>>
      "df.cost"() {{site = {n}}} : () -> ()
    }} {{df.loop = {inner}}}
  }} {{df.loop = {outer}}}
"""


def _copies(count: int) -> str:
    return COPIES + "".join(COPY.format(n=n, outer=2 * n, inner=2 * n + 1) for n in range(count)) + "  return\n}"


def test_copies_of_a_nest_share_a_function() -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(_copies(3))
        outline_nests(module, module.body.operations[0].operation)
        assert module.operation.verify()
        assert str(module).count("func.func") == 2
        assert str(module).count("call @copies.nest0") == 3
        assert [f"site = {n} : i64" in str(module) for n in range(3)] == [True, True, True]


def test_costs_of_nests_are_paid_in_full() -> None:
    engine = compile_bodies([Body("copies", _copies(2)), Body("source", SOURCE)])
    x = np.zeros((4, 4), np.int32)
    b = NetworkBuilder()
    stream = b.stream(2, token_bytes=4)
    b.tasks("source", engine.signatures["source"].words(1, [stream]))
    b.tasks("copies", engine.signatures["copies"].words(1, [Tiles(x, 0, (4, 1)), stream], cost_site=b.costs([10, 1])))
    result = engine.run(b.build())
    assert result.finished
    assert (x == 8).all()
    assert result.cycles >= 16 * (10 + 1)
    assert result.cycles <= 16 * (10 + 1) + 4
