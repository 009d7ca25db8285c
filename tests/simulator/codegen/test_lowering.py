"""Task bodies become coroutines: golden texts of each step, and the parameters that are read off a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.mlir.dialect import new_context
from allo_dse.common.mlir.jit import data_layout
from allo_dse.simulator.codegen.bodies import compile_bodies, lower_body
from allo_dse.simulator.codegen.signature import Body, CompiledBodies, Parameter, Signature
from allo_dse.simulator.codegen.stream_ops import find, reduce_stream_ops, storage_bytes, to_blocks
from allo_dse.simulator.run_time import fifo

FORWARD = """
func.func @forward(%pid: index, %in: index, %out: index) {
  %local = memref.alloc() : memref<4xi16>
  affine.for %i = 0 to 3 {
    "df.get_block"(%in, %local) {op = 0} : (index, memref<4xi16>) -> ()
    %j = arith.constant 2 : index
    %v = memref.load %local[%j] : memref<4xi16>
    "df.put"(%out, %v) {op = 1} : (index, i16) -> ()
    "df.cost"() {site = 0} : () -> ()
  }
  memref.dealloc %local : memref<4xi16>
  return
}"""


def compiled(bodies: Sequence[Body]) -> CompiledBodies:
    return compile_bodies(bodies, False, layout=data_layout(), optimize=True, started=lambda names: None)


def test_structured_control_flow_is_lowered_around_stream_operations(golden: Callable[[str, str], None]) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(FORWARD)
        reduce_stream_ops(module)
        to_blocks(module)
        golden("forward.structure.mlir", str(module))


def test_a_body_becomes_a_coroutine(golden: Callable[[str, str], None]) -> None:
    with new_context(), ir.Location.unknown():
        source = 'func.func @take(%in: index) { %v = "df.get"(%in) {op = 5} : (index) -> i8 return }'
        module, signature, *_ = lower_body(Body("take", source), "body1")
        assert signature == Signature("take", (Parameter("index", gets=True, token_bytes=1),))
        fifo.define_wakes(module)
        assert module.operation.verify()
        golden("take.coroutine.mlir", str(module.body.operations[0]))


def test_a_body_suspends_at_its_begin_and_once_in_each_stream_operation() -> None:
    with new_context(), ir.Location.unknown():
        module, *_ = lower_body(Body("forward", FORWARD), "body1")
        names = [op.name for op in nested_ops(module) if op.name.startswith(("async.coro", "df."))]
        assert names.count("async.coro.suspend") == 1 + 2
        assert names.count("async.coro.end") == 1
        assert not [name for name in names if name.startswith("df.")]


def test_small_arrays_live_in_the_frame_and_large_ones_are_freed_on_every_way_out() -> None:
    text = FORWARD.replace("memref<4xi16>", "memref<4096xi16>")
    for source, allocations in ((FORWARD, 0), (text, 1)):
        with new_context(), ir.Location.unknown():
            module, *_ = lower_body(Body("forward", source), "body1")
            assert len(find(module, "memref.alloc")) == allocations
            frees = find(module, "memref.dealloc")
            assert len(frees) == allocations
            for op in frees:
                following = [o.operation.name for o in op.block.operations]
                assert following == ["memref.dealloc", "async.coro.free", "cf.br"]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("i1", 1),
        ("i8", 1),
        ("i9", 2),
        ("i24", 4),
        ("i33", 8),
        ("i65", 16),
        ("i256", 32),
        ("i257", 48),
        ("bf16", 2),
        ("f64", 8),
        ("index", 8),
        ("memref<3x5xi24>", 60),
        ("memref<f32>", 4),
    ],
)
def test_storage_of_types(type_: str, expected: int) -> None:
    with new_context():
        assert storage_bytes(ir.Type.parse(type_)) == expected


def test_parameters_of_a_body() -> None:
    text = """
    func.func @mixed(%pid: index, %x: memref<2x3xf32>, %s: index, %array: index) {
      %n = affine.apply affine_map<(d0)[s0] -> (d0 + s0 * 2)>(%array)[%pid]
      %v = "df.get"(%s) {op = 0} : (index) -> i32
      "df.put"(%n, %v) {op = 1} : (index, i32) -> ()
      return
    }"""
    with new_context(), ir.Location.unknown():
        pid, x, s, array = lower_body(Body("mixed", text), "body1").signature.parameters
    assert x == Parameter("tensor", shape=(2, 3), element_bytes=4)
    assert s == Parameter("index", gets=True, token_bytes=4)
    assert array.computed
    assert (array.gets, array.puts) == (False, True)
    assert not pid.is_stream


def test_helpers_of_different_bodies_may_have_the_same_name() -> None:
    def body(symbol: str, constant: int) -> Body:
        return Body(
            symbol,
            f"""
            func.func private @helper() -> i32 {{
              %c = arith.constant {constant} : i32
              return %c : i32
            }}
            func.func @{symbol}(%out: memref<i32>) {{
              %v = func.call @helper() : () -> i32
              memref.store %v, %out[] : memref<i32>
              return
            }}""",
        )

    assert [s.symbol for s in compiled([body("a", 1), body("b", 2)]).signatures] == ["a", "b"]


def test_bodies_with_parameters_the_engine_cannot_pass_are_refused() -> None:
    for text, message in [
        ("func.func @f(%x: memref<?xf32>) { return }", "no static shape"),
        ("func.func @f(%x: f32) { return }", "parameter of type f32"),
    ]:
        with pytest.raises(SimulationError, match=message):
            compiled([Body("f", text)])
