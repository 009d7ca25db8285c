"""Loop nests without stream operations leave the coroutine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from allo_dse.ir.bindings import ir
from allo_dse.ir.dialect import new_context
from allo_dse.simulator.codegen.lowering.outline import outline_nests
from allo_dse.simulator.codegen.lowering.signature import Body, Tiles
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
