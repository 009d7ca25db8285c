"""The `df` dialect checks what bodies say, and several contexts can know it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from allo_dse.common.mlir import dialect
from allo_dse.common.mlir.bindings import ir

GOOD = """
func.func @good(%s: index, %m: memref<2x2xi8>) {
  %v = "df.get"(%s) {op = 0} : (index) -> f32
  "df.put"(%s, %v) {op = 1} : (index, f32) -> ()
  "df.get_block"(%s, %m) {op = 2} : (index, memref<2x2xi8>) -> ()
  "df.put_block"(%s, %m) {op = 3} : (index, memref<2x2xi8>) -> ()
  "df.cost"() {site = 0} : () -> ()
  return
}"""


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_operation_verifies_in_a_new_context(attempt: int) -> None:
    with dialect.new_context(), ir.Location.unknown():
        module = ir.Module.parse(GOOD)
        assert module.operation.verify()
        operations = list(module.body.operations[0].regions[0].blocks[0].operations)
        assert [type(op) for op in operations[:5]] == [
            dialect.Get,
            dialect.Put,
            dialect.GetBlock,
            dialect.PutBlock,
            dialect.Cost,
        ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('%v = "df.get"(%s) : (index) -> f32', "op"),
        ('%v = "df.get"(%f) {op = 0} : (f32) -> f32', "index"),
        ('"df.put"(%s) {op = 0} : (index) -> ()', "operands"),
        ('"df.cost"() {site = "x"} : () -> ()', "attribute"),
        ('"df.gets"() : () -> ()', "unregistered operation"),
    ],
)
def test_wrong_operations_are_refused(text: str, message: str) -> None:
    with dialect.new_context(), ir.Location.unknown(), pytest.raises(ir.MLIRError, match=message):
        ir.Module.parse(f"func.func @bad(%s: index, %f: f32) {{\n {text}\n return\n}}")


def context_of(text: str = "func.func @f() { return }") -> object:
    return ir.Module.parse(text).context


def test_a_threads_context_is_renewed() -> None:
    """What was made in a context stays in it for ever: there is a new one after so many uses, also within one."""
    seen = []
    for _ in range(2 * dialect.MOST_USES):
        with dialect.text_context():
            seen.append(context_of())
            with dialect.text_context():
                context_of()
            assert context_of() == seen[-1]
    changes = [at for at, (before, after) in enumerate(pairwise(seen)) if before != after]
    assert 3 <= len(changes) <= 4


def test_threads_have_contexts_of_their_own() -> None:
    def made() -> object:
        with dialect.text_context():
            return context_of()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(made).result() != made()
