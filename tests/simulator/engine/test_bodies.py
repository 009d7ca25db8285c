"""Compiled task bodies on the run engine: numbers and cycles in one run."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.codegen.coroutines import INLINED_OPS
from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import compile_bodies
from allo_dse.simulator.network.network import NetworkBuilder

from ..engine_bodies import matrices, systolic_bodies, systolic_engine, systolic_network
from ..engine_reference import simulate


@pytest.mark.parametrize(("size", "k", "depth"), [(1, 4, 1), (4, 64, 2), (4, 64, 4), (8, 16, 3)])
def test_systolic_array_multiplies_and_takes_the_known_cycles(size: int, k: int, depth: int) -> None:
    a, b, c = matrices(size, k)
    engine = systolic_engine(k)
    result = engine.run(systolic_network(engine, a, b, c, depth=depth, latency=1))
    np.testing.assert_array_equal(c, a @ b)
    # Data reaches the last drain after 2 * size hops of one cycle; with depth 1 a token waits for the room it leaves.
    assert result.finished
    assert result.cycles == (k + 2 * size if depth > 1 else systolic_reference(size, k, depth))
    assert result.cycles == systolic_reference(size, k, depth)
    assert result.operations == 4 * size * (size + 1) * k


def test_an_engine_compiles_what_its_first_run_does_and_the_rest_when_it_is_asked_for() -> None:
    engine = compile_bodies(systolic_bodies(37), record=True)  # which no other test has
    a, b, c = matrices(2, 37)
    network = systolic_network(engine, a, b, c, depth=2)
    recorded = engine.run(network, record=True)
    assert list(engine._codes) == [True]
    plain = engine.run(network)
    assert list(engine._codes) == [True, False]
    assert plain.cycles == recorded.cycles
    np.testing.assert_array_equal(c, a @ b)
    first, second = (code.compiled.signatures for code in engine._codes.values())
    assert first == second


def systolic_reference(size: int, k: int, depth: int) -> int:
    """The makespan of the same array by the reference semantics."""

    def across(i: int, j: int) -> int:
        return i * (size + 1) + j

    def down(i: int, j: int) -> int:
        return size * (size + 1) + i * size + j

    tick = ("wait", 0, 1)
    scripts = []
    for i in range(size):
        for j in range(size):
            gets = [("get", across(i, j), 0), ("get", down(i, j), 0)]
            scripts.append([*gets, ("put", across(i, j + 1), 0), ("put", down(i + 1, j), 0), tick] * k)
        scripts += [[("put", s, 0), tick] * k for s in (across(i, 0), down(0, i))]
        scripts += [[("get", s, 0), tick] * k for s in (across(i, size), down(size, i))]
    streams = 2 * size * (size + 1)
    return max(simulate(scripts, [depth] * streams, [1] * streams, [0] * streams, 0).clocks)


BLOCKS = """
func.func @scale(%pid: index, %x: memref<2x3xi16, strided<[?, ?], offset: ?>>, %out: index) {
  %local = memref.alloc() : memref<2x3xi16>
  affine.for %i = 0 to 2 {
    affine.for %j = 0 to 3 {
      %v = affine.load %x[%i, %j] : memref<2x3xi16, strided<[?, ?], offset: ?>>
      %f = arith.index_cast %pid : index to i16
      %p = arith.muli %v, %f : i16
      affine.store %p, %local[%i, %j] : memref<2x3xi16>
    }
  }
  "df.put_block"(%out, %local) {op = 0} : (index, memref<2x3xi16>) -> ()
  "df.put_block"(%out, %x) {op = 1} : (index, memref<2x3xi16, strided<[?, ?], offset: ?>>) -> ()
  memref.dealloc %local : memref<2x3xi16>
  return
}"""

GATHER = """
func.func @gather(%in: index, %y: memref<2x3xi16, strided<[?, ?], offset: ?>>) {
  %big = memref.alloc() : memref<40x40xi32>
  %local = memref.alloc() : memref<2x3xi16>
  %c = arith.constant 5 : i32
  linalg.fill ins(%c : i32) outs(%big : memref<40x40xi32>)
  "df.get_block"(%in, %local) {op = 0} : (index, memref<2x3xi16>) -> ()
  "df.get_block"(%in, %y) {op = 1} : (index, memref<2x3xi16, strided<[?, ?], offset: ?>>) -> ()
  linalg.add ins(%local, %y : memref<2x3xi16>, memref<2x3xi16, strided<[?, ?], offset: ?>>)
             outs(%y : memref<2x3xi16, strided<[?, ?], offset: ?>>)
  %zero = arith.constant 0 : index
  %b = memref.load %big[%zero, %zero] : memref<40x40xi32>
  %v = memref.load %y[%zero, %zero] : memref<2x3xi16, strided<[?, ?], offset: ?>>
  %t = arith.trunci %b : i32 to i16
  %s = arith.addi %v, %t : i16
  memref.store %s, %y[%zero, %zero] : memref<2x3xi16, strided<[?, ?], offset: ?>>
  memref.dealloc %big : memref<40x40xi32>
  memref.dealloc %local : memref<2x3xi16>
  return
}"""


@pytest.mark.parametrize("folded", [False, True])
def test_block_streams_move_strided_tiles(folded: bool) -> None:
    engine = compile_bodies([Body("scale", BLOCKS), Body("gather", GATHER)])
    x = np.arange(36, dtype=np.int16).reshape(6, 6)
    y = np.zeros((6, 6), np.int16)
    b = NetworkBuilder()
    b.tensor(x), b.tensor(y)
    streams = b.streams(np.full(6, 2 if folded else 1), token_bytes=12)
    corners = (np.arange(3)[:, None] * 12 + np.arange(2) * 3).ravel()
    words = engine.signatures["scale"].words(6, [np.arange(6), Tiles(x, corners, (6, 1)), streams])
    scale = b.tasks("scale", words)
    transposed = (np.arange(3)[:, None] * 2 + np.arange(2) * 18).ravel()
    gather = b.tasks("gather", engine.signatures["gather"].words(6, [streams, Tiles(y, transposed, (1, 6))]))
    if folded:
        b.nodes(np.stack([scale, gather], axis=1).ravel(), np.full(6, 2))
    result = engine.run(b.build())
    assert result.finished
    assert result.network.node_count == (6 if folded else 12)
    for task in range(6):
        row, column = divmod(task, 2)
        tile = x[2 * row : 2 * row + 2, 3 * column : 3 * column + 3] * (1 + task)
        tile[0, 0] += 5
        got = y[3 * column : 3 * column + 3, 2 * row : 2 * row + 2].T
        np.testing.assert_array_equal(got, tile)


def test_folded_nodes_give_the_same_numbers_on_fewer_clocks() -> None:
    size, k = 4, 8
    a, b, c = matrices(size, k)
    engine = systolic_engine(k)
    flat = engine.run(systolic_network(engine, a, b, c, depth=k))
    expected = c.copy()
    c[:] = 0
    network = systolic_network(engine, a, b, c, depth=k)
    # One node per row of the array, its tasks from left to right; loaders and drains stay alone.
    first = np.concatenate((np.arange(size + 1) * size, size * size + 1 + np.arange(4 * size)))
    folded = type(network)(**{**vars(network), "first": first})
    result = engine.run(folded)
    assert result.finished
    np.testing.assert_array_equal(c, expected)
    assert result.network.node_count == size + 4 * size
    assert result.cycles >= size * k > flat.cycles
    assert (result.task_start[1:size] == result.task_end[: size - 1]).all()


COUNTED = """
func.func private @triple(%x: i32) -> i32 {
  %c = arith.constant 3 : i32
  %y = arith.muli %x, %c : i32
  return %y : i32
}
func.func @counted(%first: index, %n: memref<i32>, %in: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %limit = memref.load %n[] : memref<i32>
  %rounds = arith.index_cast %limit : i32 to index
  scf.for %i = %zero to %rounds step %one {
    %odd = arith.constant 1 : index
    %bit = arith.andi %i, %odd : index
    %target = arith.addi %first, %bit : index
    %x = "df.get"(%in) {op = 0} : (index) -> i32
    %y = func.call @triple(%x) : (i32) -> i32
    "df.put"(%target, %y) {op = 1} : (index, i32) -> ()
    "df.cost"() {site = 0} : () -> ()
  }
  return
}
"""
SOURCE = """
func.func @source(%out: index) {
  affine.for %i = 0 to 6 {
    %v = arith.index_cast %i : index to i32
    "df.put"(%out, %v) {op = 0} : (index, i32) -> ()
  }
  return
}"""
SINK = """
func.func @sink(%in: index, %y: memref<3xi32>) {
  affine.for %i = 0 to 3 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    affine.store %v, %y[%i] : memref<3xi32>
  }
  return
}"""


def test_stream_numbers_can_be_computed_and_helpers_called() -> None:
    engine = compile_bodies([Body("counted", COUNTED), Body("source", SOURCE), Body("sink", SINK)])
    n, y = np.array(6, np.int32), np.zeros((2, 3), np.int32)
    b = NetworkBuilder()
    feed = b.stream(2, token_bytes=4)
    pair = b.streams([1, 1], token_bytes=4)
    site = b.costs([10])
    b.tasks("source", engine.signatures["source"].words(1, [feed]))
    b.tasks("counted", engine.signatures["counted"].words(1, [pair[0], Tiles(n, 0, ()), feed], cost_site=site))
    b.tasks("sink", engine.signatures["sink"].words(2, [pair, Tiles(y, [0, 3], (1,))]))
    result = engine.run(b.build())
    assert result.finished
    np.testing.assert_array_equal(y, [[0, 6, 12], [3, 9, 15]])
    assert result.task_end.tolist() == [32, 61, 42, 52]
    parameter = engine.signatures["counted"].parameters[0]
    assert parameter.puts
    assert parameter.computed


@pytest.mark.parametrize("mlir_type", ["i1", "i8", "i24", "i64", "i128", "f16", "bf16", "f64", "index"])
def test_every_element_type_goes_through_a_stream(mlir_type: str) -> None:
    is_float = "f" in mlir_type
    one = f"arith.constant 1{'.0' if is_float else ''} : {mlir_type}" if mlir_type != "i1" else "arith.constant true"
    kind = "f" if is_float else "i"
    send = f"""func.func @send(%out: index) {{
      %v = {one}
      "df.put"(%out, %v) {{op = 0}} : (index, {mlir_type}) -> ()
      "df.put"(%out, %v) {{op = 1}} : (index, {mlir_type}) -> ()
      return }}"""
    compare = f"arith.cmp{kind} {'o' if is_float else ''}eq, %v, %one : {mlir_type}"
    receive = f"""func.func @receive(%in: index, %ok: memref<2xi8>) {{
      %one = {one}
      affine.for %i = 0 to 2 {{
        %v = "df.get"(%in) {{op = 0}} : (index) -> {mlir_type}
        %same = {compare}
        %byte = arith.extui %same : i1 to i8
        affine.store %byte, %ok[%i] : memref<2xi8>
      }}
      return }}"""
    engine = compile_bodies([Body("send", send), Body("receive", receive)])
    ok = np.zeros(2, np.int8)
    b = NetworkBuilder()
    size = engine.signatures["send"].parameters[0].token_bytes
    stream = b.stream(2, token_bytes=size)
    b.tasks("send", engine.signatures["send"].words(1, [stream]))
    b.tasks("receive", engine.signatures["receive"].words(1, [stream, Tiles(ok, 0, (1,))]))
    assert engine.run(b.build()).finished
    assert ok.tolist() == [1, 1]


def test_mlir_errors_surface() -> None:
    with pytest.raises(SimulationError, match=r"'broken' is not valid MLIR[\s\S]*df\.get"):
        compile_bodies(
            [Body("broken", 'func.func @broken(%s: i32) { %v = "df.get"(%s) {op = 0} : (i32) -> f32 return }')]
        )
    with pytest.raises(SimulationError, match="no function of that name"):
        compile_bodies([Body("other", "func.func @one() { return }")])
    with pytest.raises(SimulationError, match="two different task bodies"):
        compile_bodies([Body("one", "func.func @one() { return }"), Body("one", "func.func @one() {  return }")])


def test_wrong_arguments_are_refused() -> None:
    engine = systolic_engine(4)
    signature = engine.signatures["load"]
    short = np.zeros(4, np.float32)
    with pytest.raises(SimulationError, match="2 arguments, 1 are given"):
        signature.words(1, [0])
    with pytest.raises(SimulationError, match="do not lie in an array"):
        signature.words(2, [Tiles(short, [0, 1], (1,)), 0])
    with pytest.raises(SimulationError, match="elements of 4 bytes"):
        signature.words(1, [Tiles(short.astype(np.float64), 0, (1,)), 0])
    b = NetworkBuilder()
    b.stream(2, token_bytes=16)
    b.costs([1])
    b.tasks("load", signature.words(1, [Tiles(short, 0, (1,)), 0]))
    with pytest.raises(SimulationError, match="tokens of 4 bytes, stream 0 carries 16"):
        engine.run(b.build())
    b = NetworkBuilder()
    b.stream(2, token_bytes=4)
    b.costs([1])
    b.tasks("load", signature.words(1, [Tiles(short, 0, (1,)), 0], cost_site=1))
    with pytest.raises(SimulationError, match="has 1 cost sites, the network only 0 from number 1 on"):
        engine.run(b.build())
    b = NetworkBuilder()
    b.tasks("unknown", signature.words(1, [Tiles(short, 0, (1,)), 0]))
    with pytest.raises(SimulationError, match="without the task body 'unknown'"):
        engine.run(b.build())


def test_runs_of_one_engine_in_several_threads_do_not_disturb_each_other() -> None:
    engine = systolic_engine(64)
    outcomes: list[int] = []

    def work() -> None:
        a, b, c = matrices(6, 64)
        network = systolic_network(engine, a, b, c, depth=2)
        for _ in range(20):
            cycles = engine.run(network).cycles
        np.testing.assert_array_equal(c, a @ b)
        outcomes.append(cycles)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [76] * 4


RELAY = """
func.func @relay(%in: index, %out: index) {
  affine.for %i = 0 to 1000000000000 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    "df.put"(%out, %v) {op = 1} : (index, i32) -> ()
  }
  return
}"""


def test_an_interrupted_run_leaves_the_engine_usable() -> None:
    engine = compile_bodies([Body("relay", RELAY)])
    b = NetworkBuilder()
    streams = b.streams([1, 1], token_bytes=4, initial=[1, 0])
    b.tasks("relay", engine.signatures["relay"].words(2, [streams, streams[::-1]]))
    network = b.build()

    def interrupt(finished: int) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            engine.run(network, progress=interrupt)
    with pytest.raises(SimulationError, match="time limit"):
        engine.run(network, seconds=0.05)


FILTER = """
func.func @filter(%in: index, %out: index, %count: memref<i32>) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %n = scf.while (%kept = %zero) : (i32) -> i32 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    %more = arith.cmpi ne, %v, %zero : i32
    %low = arith.andi %v, %one : i32
    %odd = arith.cmpi eq, %low, %one : i32
    %next = scf.if %odd -> i32 {
      "df.put"(%out, %v) {op = 1} : (index, i32) -> ()
      %k = arith.addi %kept, %one : i32
      scf.yield %k : i32
    } else {
      "df.cost"() {site = 1} : () -> ()
      scf.yield %kept : i32
    }
    "df.cost"() {site = 0} : () -> ()
    scf.condition(%more) %next : i32
  } do {
  ^bb0(%kept: i32):
    scf.yield %kept : i32
  }
  memref.store %n, %count[] : memref<i32>
  return
}"""
FEED = """
func.func @feed(%x: memref<6xi32>, %out: index) {
  affine.for %i = 0 to 6 {
    %v = affine.load %x[%i] : memref<6xi32>
    "df.put"(%out, %v) {op = 0} : (index, i32) -> ()
  }
  return
}"""


def test_streams_in_data_dependent_control_flow() -> None:
    engine = compile_bodies([Body("filter", FILTER), Body("feed", FEED), Body("sink", SINK)])
    x, y, n = np.array([5, 2, 7, 4, 9, 0], np.int32), np.zeros(3, np.int32), np.zeros((), np.int32)
    b = NetworkBuilder()
    first, second = b.stream(1, token_bytes=4), b.stream(1, token_bytes=4)
    site = b.costs([1, 100])
    b.tasks("feed", engine.signatures["feed"].words(1, [Tiles(x, 0, (1,)), first]))
    b.tasks("filter", engine.signatures["filter"].words(1, [first, second, Tiles(n, 0, ())], cost_site=site))
    b.tasks("sink", engine.signatures["sink"].words(1, [second, Tiles(y, 0, (1,))]))
    result = engine.run(b.build())
    assert result.finished
    assert (y.tolist(), int(n)) == ([5, 7, 9], 3)
    # Gets at 1, 3, 104, 106, 207 and 209: with depth 1 a token is put one cycle after the last was taken.
    assert result.task_end[1] == 310
    assert result.puts.tolist() == [6, 3]


def chain_of(tokens: int, *, unrolled: bool) -> list[Body]:
    """A feed, a relay that is slower at every token, and a sink, with a loop or an operation for each token."""

    def body(name: str, arguments: str, token: str) -> Body:
        if unrolled:
            steps = "".join(token.format(i=n, at=n, op=2 * n, next=2 * n + 1) for n in range(tokens))
        else:
            steps = f"affine.for %i = 0 to {tokens} {{{token.format(i='', at='%i', op=0, next=1)}}}"
        return Body(name, f"func.func @{name}({arguments}) {{{steps}\nreturn}}")

    load = f"""
    %v{{i}} = affine.load %x[{{at}}] : memref<{tokens}xi32>
    "df.put"(%out, %v{{i}}) {{{{op = {{op}}}}}} : (index, i32) -> ()"""
    relay = """
    %v{i} = "df.get"(%in) {{op = {op}}} : (index) -> i32
    "df.cost"() {{site = 0}} : () -> ()
    "df.put"(%out, %v{i}) {{op = {next}}} : (index, i32) -> ()"""
    store = f"""
    %v{{i}} = "df.get"(%in) {{{{op = {{op}}}}}} : (index) -> i32
    affine.store %v{{i}}, %y[{{at}}] : memref<{tokens}xi32>"""
    return [
        body("feed", f"%x: memref<{tokens}xi32>, %out: index", load),
        body("relay", "%in: index, %out: index", relay),
        body("sink", f"%in: index, %y: memref<{tokens}xi32>", store),
    ]


@pytest.mark.parametrize("depth", [1, 3])
def test_operations_that_are_called_do_what_those_in_a_loop_do(depth: int) -> None:
    tokens, results = 2 * INLINED_OPS, []
    for unrolled in (False, True):
        engine = compile_bodies(chain_of(tokens, unrolled=unrolled))
        x, y = np.arange(tokens, dtype=np.int32) * 7, np.zeros(tokens, np.int32)
        b = NetworkBuilder()
        first, second = b.stream(depth, token_bytes=4), b.stream(depth, token_bytes=4)
        site = b.costs([5])
        b.tasks("feed", engine.signatures["feed"].words(1, [Tiles(x, 0, (1,)), first]))
        b.tasks("relay", engine.signatures["relay"].words(1, [first, second], cost_site=site))
        b.tasks("sink", engine.signatures["sink"].words(1, [second, Tiles(y, 0, (1,))]))
        result = engine.run(b.build())
        assert result.finished
        np.testing.assert_array_equal(y, x)
        said = (result.task_end, result.puts, result.occupancy, result.stall_get, result.stall_put)
        results.append([column.tolist() for column in said])
    assert results[0] == results[1]
