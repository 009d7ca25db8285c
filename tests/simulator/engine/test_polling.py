"""Operations that do not wait: their answers hold at the time they are asked for, in whatever order nodes are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import NetworkBuilder

COUNT = 20

# Both sides pause after a token for a number of cycles that follows from its number, and count their attempts.
TRY_SEND = """
func.func @send(%out: index, %log: memref<20xi32, strided<[?], offset: ?>>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 20 : index
  %three = arith.constant 3 : index
  scf.while (%i = %zero) : (index) -> index {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %i : index
  } do {
  ^bb0(%i: index):
    %v = arith.index_cast %i : index to i32
    %ok = "df.try_put"(%out, %v) {op = 0} : (index, i32) -> i1
    %old = memref.load %log[%i] : memref<20xi32, strided<[?], offset: ?>>
    %c1 = arith.constant 1 : i32
    %new = arith.addi %old, %c1 : i32
    memref.store %new, %log[%i] : memref<20xi32, strided<[?], offset: ?>>
    %pause = arith.remui %i, %three : index
    scf.for %k = %zero to %pause step %one { "df.cost"() {site = 0} : () -> () }
    %step = arith.index_castui %ok : i1 to index
    %up = arith.andi %step, %one : index
    %next = arith.addi %i, %up : index
    scf.yield %next : index
  }
  return
}"""

TRY_RECEIVE = """
func.func @receive(%in: index, %y: memref<20xi32, strided<[?], offset: ?>>,
                   %log: memref<20xi32, strided<[?], offset: ?>>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 20 : index
  %five = arith.constant 5 : index
  scf.while (%i = %zero) : (index) -> index {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %i : index
  } do {
  ^bb0(%i: index):
    %v, %ok = "df.try_get"(%in) {op = 0} : (index) -> (i32, i1)
    memref.store %v, %y[%i] : memref<20xi32, strided<[?], offset: ?>>
    %old = memref.load %log[%i] : memref<20xi32, strided<[?], offset: ?>>
    %c1 = arith.constant 1 : i32
    %new = arith.addi %old, %c1 : i32
    memref.store %new, %log[%i] : memref<20xi32, strided<[?], offset: ?>>
    %next = scf.if %ok -> index {
      %pause = arith.remui %i, %five : index
      scf.for %k = %zero to %pause step %one { "df.cost"() {site = 0} : () -> () }
      %up = arith.addi %i, %one : index
      scf.yield %up : index
    } else {
      scf.yield %i : index
    }
    scf.yield %next : index
  }
  return
}"""


@pytest.fixture(scope="module")
def pair() -> Engine:
    return compile_bodies([Body("send", TRY_SEND), Body("receive", TRY_RECEIVE)])


def run_pair(engine: Engine, depth: int, *, reverse: bool, **options: Any) -> tuple[RunResult, list[list[int]]]:
    b = NetworkBuilder()
    y, tried, asked = arrays = [np.zeros(COUNT, np.int32) for _ in range(3)]
    for array in arrays:
        b.tensor(array)
    stream, costs = b.stream(depth, token_bytes=4), b.costs(np.array([1]))

    def tile(array: np.ndarray) -> Tiles:
        return Tiles(array, 0, (1,))

    words = {
        "send": engine.signatures["send"].words(1, [stream, tile(tried)], cost_site=costs),
        "receive": engine.signatures["receive"].words(1, [stream, tile(y), tile(asked)], cost_site=costs),
    }
    for body in ("receive", "send") if reverse else ("send", "receive"):
        b.tasks(body, words[body])
    return engine.run(b.build(), **options), [a.tolist() for a in (y, tried, asked)]


def expected_pair(depth: int, latency: int) -> tuple[list[int], list[int], int, int]:
    """Attempts and clocks at the end by stepping both sides cycle by cycle."""
    tried, asked = [0] * COUNT, [0] * COUNT
    stamps: list[Any] = []
    freed: list[Any] = []
    sender = receiver = sent = received = now = 0
    while sent < COUNT or received < COUNT:
        if sent < COUNT and sender == now:
            tried[sent] += 1
            pause = sent % 3
            if sent < depth or (sent - depth < len(freed) and freed[sent - depth] < now):
                stamps.append(now)
                sent += 1
            sender += 1 + pause
        if received < COUNT and receiver == now:
            asked[received] += 1
            receiver += 1
            if received < len(stamps) and stamps[received] + latency <= now:
                freed.append(now)
                receiver += received % 5
                received += 1
        now += 1
    return tried, asked, sender, receiver


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_both_sides_try_until_all_tokens_have_passed(pair: Engine, depth: int, reverse: bool) -> None:
    result, (y, tried, asked) = run_pair(pair, depth, reverse=reverse)
    assert result.finished
    assert y == list(range(COUNT))
    expected = expected_pair(depth, 1 if depth <= 2 else 2)
    assert (tried, asked) == expected[:2]
    assert result.task_end.tolist() == list(expected[2:])[:: -1 if reverse else 1]


@pytest.mark.parametrize("options", [{"payload": False}, {"record": True}])
def test_other_variants_take_the_same_cycles(pair: Engine, options: dict[str, bool]) -> None:
    plain, numbers = run_pair(pair, 2, reverse=False)
    other, again = run_pair(pair, 2, reverse=False, **options)
    assert other.cycles == plain.cycles
    assert again == numbers


DELAYED = """
func.func @delayed(%out: index) {
  %v = arith.constant 7 : i32
  "df.cost"() {site = 0} : () -> ()
  "df.put"(%out, %v) {op = 0} : (index, i32) -> ()
  return
}"""

WATCH = """
func.func @watch(%in: index, %y: memref<2xi32, strided<[?], offset: ?>>) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %count = scf.while (%n = %c0) : (i32) -> i32 {
    %empty = "df.empty"(%in) {op = 0} : (index) -> i1
    scf.condition(%empty) %n : i32
  } do {
  ^bb0(%n: i32):
    %next = arith.addi %n, %c1 : i32
    scf.yield %next : i32
  }
  %v = "df.get"(%in) {op = 1} : (index) -> i32
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  memref.store %count, %y[%zero] : memref<2xi32, strided<[?], offset: ?>>
  memref.store %v, %y[%one] : memref<2xi32, strided<[?], offset: ?>>
  return
}"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("delay", "latency"), [(0, 1), (1, 1), (17, 1), (40, 3), (30_000, 2)])
def test_polling_counts_the_cycles_until_a_token_arrives(delay: int, latency: int, reverse: bool) -> None:
    engine = compile_bodies([Body("delayed", DELAYED), Body("watch", WATCH)])
    b = NetworkBuilder()
    y = np.zeros(2, np.int32)
    b.tensor(y)
    stream, costs = b.stream(2, token_bytes=4, latency=latency), b.costs(np.array([delay]))
    tasks = [
        ("delayed", engine.signatures["delayed"].words(1, [stream], cost_site=costs)),
        ("watch", engine.signatures["watch"].words(1, [stream, Tiles(y, 0, (1,))])),
    ]
    for body, words in reversed(tasks) if reverse else tasks:
        b.tasks(body, words)
    result = engine.run(b.build())
    assert result.finished
    assert y.tolist() == [delay + latency, 7]
    assert result.cycles == delay + latency + 1
