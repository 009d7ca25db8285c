"""Speed of the run engine, as ratios to the same semantics in Numba (`engine_reference.py`) at the same time.

For a 16 x 16 systolic array with K = 1024 it prints millions of stream operations per second, of compiled bodies that
compute the product as well as the times and of the same array as operation tables, and what building and compiling
cost; then what leaving out the values saves, what recording costs, and how long arrays of any K take when their
periodic behaviour is extrapolated, and how that grows with the array. For 100,000 tasks, all running at once or folded
onto 100 nodes, it prints the memory that a task takes.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np

from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.program import load_program
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.engine.engine import Engine, compile_bodies, table_engine
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

install()

from benchmarks.engine_reference import operations, poll, systolic
from studies.gemm_npu import gemm
from tests.simulator.engine_bodies import matrices, systolic_bodies, systolic_network

SIZE, K = 16, 1024
TASKS, NODES = 100_000, 100

FORWARD = """
func.func @forward(%in: index, %out: index) {
  affine.for %i = 0 to 4 {
    %v = "df.get"(%in) {op = 0} : (index) -> i32
    "df.put"(%out, %v) {op = 1} : (index, i32) -> ()
    "df.cost"() {site = 0} : () -> ()
  }
  return
}"""


def best(action: Callable[[], object], times: int = 5) -> float:
    """Processor seconds of the fastest of several calls: other programs on the machine hardly change them."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def reference_speed(depth: int) -> float:
    """Stream operations per second of the same array by the reference."""
    arguments = systolic(SIZE, K, depth)
    clocks, _ = poll(*arguments)
    assert clocks.max() == K + 2 * SIZE * (1 if depth <= 2 else 2)
    return operations(SIZE, K) / best(lambda: poll(*arguments), 3)


def table_network(depth: int, rounds: int = K, size: int = SIZE) -> Network:
    """The systolic array's times only, as operation tables."""
    b = NetworkBuilder()
    across = b.streams(np.full(size * (size + 1), depth)).reshape(size, size + 1).tolist()
    down = b.streams(np.full(size * (size + 1), depth)).reshape(size + 1, size).tolist()
    cell, load, drain = Table(), Table(), Table()
    with cell.repeat(rounds):
        cell.get(0), cell.get(1), cell.put(2), cell.put(3), cell.wait(1)
    with load.repeat(rounds):
        load.put(0), load.wait(1)
    with drain.repeat(rounds):
        drain.get(0), drain.wait(1)
    for i in range(size):
        for j in range(size):
            b.process(cell, [across[i][j], down[i][j], across[i][j + 1], down[i + 1][j]])
        for stream in (across[i][0], down[0][i]):
            b.process(load, [stream])
        for stream in (across[i][size], down[size][i]):
            b.process(drain, [stream])
    return b.build()


def report_speed() -> None:
    start = time.perf_counter()
    engine = compile_bodies(systolic_bodies(K))
    print(f"compiling three bodies and the scheduler: {time.perf_counter() - start:.3f} s (first: with MLIR's import)")
    for depth in (2, 4, 16):
        baseline = reference_speed(depth)
        print(f"reference in Numba, depth {depth:2d}: {baseline / 1e6:.0f} M stream operations/s")
        a, b, c = matrices(SIZE, K)
        network = systolic_network(engine, a, b, c, depth=depth)
        build = best(lambda a=a, b=b, c=c, d=depth: systolic_network(engine, a, b, c, depth=d))  # type: ignore[misc]
        show("bodies", engine, network, depth, build, baseline)
        assert (c == a @ b).all()
        build = best(lambda d=depth: table_network(d))  # type: ignore[misc]
        show("tables", table_engine(), table_network(depth), depth, build, baseline)


def show(kind: str, engine: Engine, network: Network, depth: int, build: float, baseline: float) -> None:
    result = engine.run(network)
    seconds = best(lambda: engine.run(network), 15)
    speed = result.operations / seconds
    print(
        f"{kind}, {SIZE}x{SIZE}, K={K}, depth {depth:2d}: {result.cycles} cycles, {speed / 1e6:4.0f} M stream "
        f"operations/s = {speed / baseline:.1f} x reference; building {build * 1e3:.2f} ms"
    )


def report_second_design() -> None:
    """What another mapping or other depths of a program cost beside their run: nothing is compiled."""
    program = load_program(gemm, M=64, N=64, K=64, Pm=16, Pn=16, Pk=4)
    fold = next(fold for fold in fold_choices(program, 16) if fold.node_count == 16)
    primitives = program.vmg.fold(fold).mapping_primitives
    arrays = [np.zeros((64, 64), np.int16) for _ in range(3)]
    run_graph(program.vmg, *arrays)
    folded = program.vmg.apply(primitives)
    run_graph(folded, *arrays)
    beside: list[float] = []
    for _ in range(10):
        start = time.process_time()
        result = run_graph(folded, *arrays)
        whole = time.process_time() - start
        engine = compile_bodies(Body(c.body.symbol, c.body.mlir) for k in program.kernels for c in k.classes)
        beside.append(whole - best(lambda n=result.network, e=engine: e.run(n), 3))  # type: ignore[misc]
    print(
        f"another design of a program of {program.task_count} tasks on {folded.node_count} nodes: "
        f"{min(beside) * 1e3:.2f} ms beside its run"
    )


def report_variants() -> None:
    """Bodies with values, without, and recorded."""
    engine = compile_bodies(systolic_bodies(K))
    network = systolic_network(engine, *matrices(SIZE, K), depth=4)
    plain = best(lambda: engine.run(network))
    for name, options in (("without values", {"payload": False}), ("recorded", {"record": True})):
        engine.run(network, **options)  # type: ignore[arg-type]
        seconds = best(lambda o=options: engine.run(network, **o), 3)  # type: ignore[misc]
        print(f"bodies {name}: {seconds / plain:.2f} x the time of the run")
    result = engine.run(network, record=True)
    seconds = best(lambda: str(engine.run(network, record=True).explain()), 2)
    print(f"recorded and explained: {seconds * 1e3:.0f} ms for {result.operations} operations")


def report_extrapolation() -> None:
    """Compiled bodies and tables of the same array, for long and very long sums."""
    for rounds in (1 << 10, 1 << 20):
        engine = compile_bodies(systolic_bodies(rounds))
        a, b = np.zeros((SIZE, rounds), np.float32), np.zeros((rounds, SIZE), np.float32)
        bodies = systolic_network(engine, a, b, np.zeros((SIZE, SIZE), np.float32), depth=4)
        for kind, net, of in (("bodies", bodies, engine), ("tables", table_network(4, rounds), table_engine())):
            times = of.run(net, payload=False, extrapolate=True)
            seconds = best(lambda n=net, e=of: e.run(n, payload=False, extrapolate=True))  # type: ignore[misc]
            print(
                f"{kind}, {SIZE}x{SIZE}, K={rounds}, extrapolated: {times.cycles} cycles in {seconds * 1e3:.1f} ms, "
                f"{times.operations - times.skipped:,} of {times.operations:,} operations executed"
            )


def report_growth() -> None:
    """Arrays of four times as many elements: all are to take four times as long, at a length that hardly matters."""
    engine, before = table_engine(), 0.0
    for size in (16, 32, 64, 128):
        network = table_network(2, 1 << 20, size)
        times = engine.run(network, extrapolate=True)
        seconds = best(lambda n=network: engine.run(n, extrapolate=True))  # type: ignore[misc]
        ratio = f", {seconds / before:.1f} x the array before" if before else ""
        turns = times.turns / network.node_count
        print(f"tables, {size}x{size}, extrapolated: {seconds * 1e3:.1f} ms{ratio}, {turns:.0f} turns per node")
        before = seconds


def chain(engine: Engine, nodes: int) -> Network:
    """100,000 tasks in a chain, on as many nodes or folded onto fewer; each passes on four tokens."""
    b = NetworkBuilder()
    streams = b.streams(np.full(TASKS + 1, 4), token_bytes=4)
    words = engine.signatures["forward"].words(TASKS, [streams[:-1], streams[1:]], cost_site=b.costs([1]))
    tasks = b.tasks("forward", words)
    source, sink = Table(), Table()
    with source.repeat(4):
        source.put(0)
    with sink.repeat(4):
        sink.get(0)
    ends = [b.process(source, [0]), b.process(sink, [TASKS])]
    b.nodes(tasks, np.full(nodes, TASKS // nodes))
    b.nodes(np.array(ends), np.ones(2, np.int64))
    return b.build()


def report_memory() -> None:
    engine = compile_bodies([Body("forward", FORWARD)])
    for nodes in (NODES, TASKS):
        build = best(lambda n=nodes: chain(engine, n), 3)  # type: ignore[misc]
        network = chain(engine, nodes)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        result = engine.run(network)
        seconds = time.perf_counter() - start
        used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / TASKS
        assert result.finished
        print(
            f"{TASKS} tasks on {nodes} nodes: built in {build * 1e3:.0f} ms, run in {seconds * 1e3:.0f} ms, "
            f"{max(used, 0):.0f} bytes of memory per task more at the peak"
        )


if __name__ == "__main__":
    report_memory()
    report_speed()
    report_second_design()
    report_variants()
    report_extrapolation()
    report_growth()
