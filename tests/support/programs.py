"""Compiled programs built by hand, without the front end, for tests of everything behind it.

Their task bodies carry no code: they are for mapping, checking and timing, not for running.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allo_dse.compiler.program.compiled import CompiledProgram, Kernel, TaskBody, TaskClass, TileOp
from allo_dse.compiler.program.tensors import (
    IndexMap,
    SourceLocation,
    StreamArray,
    StreamOp,
    StreamPort,
    Tensor,
    TensorPort,
)
from allo_dse.lang.types import DType

INT8 = DType("int8", "int", 8)
INT16 = DType("int16", "int", 16)
INT32 = DType("int32", "int", 32)
BFLOAT16 = DType("bfloat16", "bfloat", 16)
FLOAT32 = DType("float32", "float", 32)

Rows = Sequence[Sequence[int]]


def affine(grid: Sequence[int], matrix: Rows, offset: Sequence[int] | None = None) -> IndexMap:
    """`index = matrix @ pid + offset` into `grid`."""
    rows = tuple(tuple(row) for row in matrix)
    return IndexMap(tuple(grid), rows, tuple(offset) if offset is not None else (0,) * len(rows))


def unit(rank: int, *axes: int | None) -> tuple[tuple[int, ...], ...]:
    """Rows of an index map: row i picks mesh axis `axes[i]`, or nothing for None."""
    return tuple(tuple(int(a == axis) for a in range(rank)) for axis in axes)


def sharded(
    arg: int,
    tensor: Tensor,
    mesh: Sequence[int],
    layout: Sequence[int | None],
    *,
    reads: bool = False,
    writes: bool = False,
) -> TensorPort:
    """A tensor port whose dimension d is sharded on mesh axis `layout[d]` (None: replicated)."""
    grid = tuple(1 if axis is None else mesh[axis] for axis in layout)
    tile_shape = tuple(n // g for n, g in zip(tensor.shape, grid, strict=True))
    tile = affine(grid, unit(len(mesh), *layout))
    return TensorPort(arg, tensor, tuple(layout), tile_shape, tile, reads, writes)


def put(stream: StreamArray, index: IndexMap, tokens: int | None = 1) -> StreamPort:
    return StreamPort(stream, "put", index, tokens)


def get(stream: StreamArray, index: IndexMap, tokens: int | None = 1) -> StreamPort:
    return StreamPort(stream, "get", index, tokens)


def task_class(
    kernel: str,
    name: str,
    tensors: Sequence[TensorPort] = (),
    streams: Sequence[StreamPort] = (),
    work: Sequence[TileOp] = (),
    whole: Sequence[StreamArray] = (),
) -> TaskClass:
    """A task class; gets come before puts, as in any task that computes something from what it got.

    Streams of the arrays in `whole` are chosen by the body itself; `streams` then lists all that it may choose.
    """
    ports = tuple(sorted(streams, key=lambda port: port.direction))
    ops = tuple(StreamOp(p.stream, p.direction, SourceLocation("program.py", i, 1)) for i, p in enumerate(ports, 1))
    bound: tuple[StreamPort | StreamArray, ...] = (*(p for p in ports if p.stream not in whole), *whole)
    return TaskClass(name, kernel, tuple(tensors), ports, tuple(work), ops, TaskBody(f"{kernel}_{name}", "", bound))


def one_class_kernel(
    name: str,
    mesh: Sequence[int],
    args: Sequence[Tensor] = (),
    tensors: Sequence[TensorPort] = (),
    streams: Sequence[StreamPort] = (),
    work: Sequence[TileOp] = (),
    whole: Sequence[StreamArray] = (),
) -> Kernel:
    """A kernel all of whose tasks are alike."""
    table = np.zeros((1,) * len(mesh), np.int64)
    return Kernel(name, tuple(mesh), tuple(args), (task_class(name, "all", tensors, streams, work, whole),), table)


def gemm_program(
    M: int = 2048,
    N: int = 2048,
    K: int = 2048,
    Pm: int = 32,
    Pn: int = 32,
    Pk: int = 32,
    dtype: DType = INT16,
    out: DType | None = None,
) -> CompiledProgram:
    """Split-K GEMM: mesh [Pk, Pm, Pn], partial sums of C tiles handed along k through `pipe[Pk - 1, Pm, Pn]`.

    Classes: "first" (pk == 0, only puts), "middle", "last" (writes C); "only" when Pk == 1.
    """
    out = out or dtype
    mesh = (Pk, Pm, Pn)
    a, b, c = Tensor("A", dtype, (M, K)), Tensor("B", dtype, (K, N)), Tensor("C", out, (M, N))
    tm, tn, tk = M // Pm, N // Pn, K // Pk
    pipe = StreamArray("pipe", out, (tm, tn), 2, (max(Pk - 1, 1), Pm, Pn))
    here = affine(pipe.shape, unit(3, 0, 1, 2))
    before = affine(pipe.shape, unit(3, 0, 1, 2), (-1, 0, 0))

    def make(name: str, *, gets: bool, puts: bool) -> TaskClass:
        tensors = (
            sharded(0, a, mesh, (1, 0), reads=True),
            sharded(1, b, mesh, (0, 2), reads=True),
            sharded(2, c, mesh, (1, 2), writes=not puts),
        )
        streams = [get(pipe, before)] * gets + [put(pipe, here)] * puts
        start = () if gets else (TileOp("fill", (tm, tn), (out,)),)
        work = (*start, TileOp("matmul", (tm, tk, tn), (dtype, dtype, out)), TileOp("add", (tm, tn), (out, out, out)))
        return task_class("gemm", name, tensors, streams, work)

    if Pk == 1:
        classes: tuple[TaskClass, ...] = (make("only", gets=False, puts=False),)
        table = np.zeros((1, 1, 1), np.int64)
    else:
        first, last = make("first", gets=False, puts=True), make("last", gets=True, puts=False)
        middle = (make("middle", gets=True, puts=True),) if Pk > 2 else ()
        classes = (first, *middle, last)
        table = np.full((Pk, 1, 1), 1, np.int64)
        table[0], table[-1] = 0, len(classes) - 1
    kernel = Kernel("gemm", mesh, (a, b, c), classes, table)
    params = {"Pm": Pm, "Pn": Pn, "Pk": Pk, "M": M, "N": N, "K": K}
    streams = (pipe,) if Pk > 1 else ()
    return CompiledProgram("gemm", (a, b, c), streams, (kernel,), params)


def systolic_program(P: int = 4, K: int = 8, dtype: DType = INT16) -> CompiledProgram:
    """A P x P systolic array with loaders and drains around it: mesh [P + 2, P + 2], A moves right and B down."""
    n = P + 2
    mesh = (n, n)
    a, b, c = Tensor("A", dtype, (P, K)), Tensor("B", dtype, (K, P)), Tensor("C", dtype, (P, P))
    fifo_a = StreamArray("fifo_A", dtype, (), 4, mesh)
    fifo_b = StreamArray("fifo_B", dtype, (), 4, mesh)
    here = affine(mesh, unit(2, 0, 1))
    right, down = affine(mesh, unit(2, 0, 1), (0, 1)), affine(mesh, unit(2, 0, 1), (1, 0))
    whole = {"a": sharded(0, a, mesh, (None, None), reads=True), "b": sharded(1, b, mesh, (None, None), reads=True)}
    c_port = sharded(2, c, mesh, (None, None), writes=True)
    loop = (TileOp("loop", (), (), K),)
    gets = [get(fifo_a, here, K), get(fifo_b, here, K)]
    puts = [put(fifo_a, right, K), put(fifo_b, down, K)]
    classes = (
        task_class("gemm", "corner"),
        task_class("gemm", "left", [whole["a"]], puts[:1], loop),
        task_class("gemm", "top", [whole["b"]], puts[1:], loop),
        task_class("gemm", "right", [], gets[:1], loop),
        task_class("gemm", "bottom", [], gets[1:], loop),
        task_class("gemm", "interior", [c_port], gets + puts, loop),
    )
    table = np.full(mesh, 5, np.int64)
    table[:, 0], table[0, :], table[:, -1], table[-1, :] = 1, 2, 3, 4
    table[[0, 0, -1, -1], [0, -1, 0, -1]] = 0
    kernel = Kernel("gemm", mesh, (a, b, c), classes, table)
    return CompiledProgram("systolic", (a, b, c), (fifo_a, fifo_b), (kernel,), {"P": P, "K": K})


def producer_consumer(n: int = 16, dtype: DType = FLOAT32) -> CompiledProgram:
    """One producer that reads A, one consumer that writes B, `n * n` tokens between them."""
    a, b = Tensor("A", dtype, (n, n)), Tensor("B", dtype, (n, n))
    pipe = StreamArray("pipe", dtype, (), 4, ())
    whole = affine((), ())
    loop = (TileOp("loop", (), (), n * n),)
    producer = one_class_kernel(
        "producer", (1,), (a,), [sharded(0, a, (1,), (None, None), reads=True)], [put(pipe, whole, n * n)], loop
    )
    consumer = one_class_kernel(
        "consumer", (1,), (b,), [sharded(0, b, (1,), (None, None), writes=True)], [get(pipe, whole, n * n)], loop
    )
    return CompiledProgram("producer_consumer", (a, b), (pipe,), (producer, consumer), {"n": n})


def vector_add_program(P: int = 4, n: int = 1024, dtype: DType = INT32) -> CompiledProgram:
    """B = A + 1 in P independent tasks: no streams."""
    a, b = Tensor("A", dtype, (n,)), Tensor("B", dtype, (n,))
    ports = [sharded(0, a, (P,), (0,), reads=True), sharded(1, b, (P,), (0,), writes=True)]
    work = (TileOp("add", (n // P,), (dtype, dtype, dtype)),)
    return CompiledProgram("vadd", (a, b), (), (one_class_kernel("core", (P,), (a, b), ports, (), work),), {"P": P})


def attention_program(rows: int = 8, chunks: int = 4, head: int = 64, dtype: DType = BFLOAT16) -> CompiledProgram:
    """FlashAttention, a pipeline per query row: send_q, cal_attn_score and attn (per chunk), cal_softmax, acc."""
    tile = 32
    q, out = Tensor("Q", dtype, (rows * tile, head)), Tensor("O", dtype, (rows * tile, head))
    k, v = Tensor("K", dtype, (chunks * tile, head)), Tensor("V", dtype, (chunks * tile, head))
    shape = (rows, chunks)
    q_pipe = StreamArray("q_pipe", dtype, (tile, head), 2, shape)
    score = StreamArray("score", dtype, (tile, tile), 2, shape)
    weight = StreamArray("weight", dtype, (tile, tile), 2, shape)
    partial = StreamArray("partial", dtype, (tile, head), 2, shape)
    scale = StreamArray("scale", dtype, (tile,), 2, (rows,))
    each = affine(shape, unit(2, 0, 1))
    row = affine((rows,), unit(1, 0))
    of_row = [affine(shape, unit(1, 0, None), (0, c)) for c in range(chunks)]
    half = (rows,)

    def matmul(m: int, kk: int, n: int) -> tuple[TileOp, ...]:
        return (TileOp("matmul", (m, kk, n), (dtype, dtype, dtype)),)

    send_q = one_class_kernel(
        "send_q", half, (q,), [sharded(0, q, half, (0, None), reads=True)], [put(q_pipe, i) for i in of_row]
    )
    scores = one_class_kernel(
        "cal_attn_score", shape, (k,), [sharded(0, k, shape, (1, None), reads=True)],
        [get(q_pipe, each), put(score, each)], matmul(tile, head, tile),
    )  # fmt: skip
    softmax = one_class_kernel(
        "cal_softmax", half, (), (),
        [get(score, i) for i in of_row] + [put(weight, i) for i in of_row] + [put(scale, row, chunks)],
        (TileOp("exp", (tile, tile), (dtype, dtype), chunks),),
    )  # fmt: skip
    attn = one_class_kernel(
        "attn", shape, (v,), [sharded(0, v, shape, (1, None), reads=True)],
        [get(weight, each), put(partial, each)], matmul(tile, tile, head),
    )  # fmt: skip
    acc = one_class_kernel(
        "acc", half, (out,), [sharded(0, out, half, (0, None), writes=True)],
        [get(partial, i) for i in of_row] + [get(scale, row, chunks)],
        (TileOp("add", (tile, head), (dtype, dtype, dtype), chunks),),
    )  # fmt: skip
    streams = (q_pipe, score, weight, partial, scale)
    return CompiledProgram(
        "attention", (q, k, v, out), streams, (send_q, scores, softmax, attn, acc), {"rows": rows, "chunks": chunks}
    )


def graph_program(edges: Sequence[tuple[str, str]], nodes: Sequence[str] = (), dtype: DType = INT32) -> CompiledProgram:
    """An irregular program: one single-task kernel per name (`<name>_0` is its task), one stream per edge."""
    names = list(dict.fromkeys([*nodes, *(name for edge in edges for name in edge)]))
    whole = affine((), ())
    streams = [StreamArray(f"s{i}", dtype, (), 2, ()) for i in range(len(edges))]
    kernels = []
    for name in names:
        ports = [get(s, whole) for s, edge in zip(streams, edges, strict=True) if edge[1] == name]
        ports += [put(s, whole) for s, edge in zip(streams, edges, strict=True) if edge[0] == name]
        kernels.append(one_class_kernel(name, (1,), streams=ports))
    return CompiledProgram("graph", (), tuple(streams), tuple(kernels))


def stages_program(sizes: Sequence[int], kinds: Sequence[str], dtype: DType = INT32) -> CompiledProgram:
    """Kernels `s0`, `s1`, ... each of which feeds the next, on the mesh `sizes` ("grid"), turned round ("turned"), or
    on its first axis only ("row", whose tasks exchange a token with every task of their row); "sums" is a grid that
    also hands a token along its rows.
    """
    rows, columns = sizes
    meshes = {"grid": (rows, columns), "sums": (rows, columns), "turned": (columns, rows), "row": (rows,)}
    arrays = [StreamArray(f"t{i}", dtype, (4,), 2, (rows, columns)) for i in range(len(kinds) - 1)]

    def ends(array: StreamArray, kind: str) -> list[IndexMap]:
        if kind == "row":
            return [affine(array.shape, unit(1, 0, None), (0, c)) for c in range(columns)]
        return [affine(array.shape, unit(2, *((1, 0) if kind == "turned" else (0, 1))))]

    kernels = []
    for number, kind in enumerate(kinds):
        ports = [get(arrays[number - 1], i) for i in ends(arrays[number - 1], kind)] if number else []
        ports += [put(arrays[number], i) for i in ends(arrays[number], kind)] if number < len(arrays) else []
        if kind == "sums":
            kernels.append(_summing_kernel(f"s{number}", (rows, columns), ports, dtype))
        else:
            kernels.append(one_class_kernel(f"s{number}", meshes[kind], streams=ports))
    used = {p.stream.name: p.stream for k in kernels for c in k.classes for p in c.stream_ports}
    return CompiledProgram("stages", (), tuple(used.values()), tuple(kernels), {"kinds": tuple(kinds)})


def _summing_kernel(name: str, mesh: tuple[int, int], ports: Sequence[StreamPort], dtype: DType) -> Kernel:
    """A grid whose tasks hand a token to the next one of their row."""
    running = StreamArray(f"{name}_running", dtype, (4,), 2, mesh)
    here = affine(mesh, unit(2, 0, 1))
    taken, given = get(running, affine(mesh, unit(2, 0, 1), (0, -1))), put(running, here)
    own = {"first": [given], "middle": [taken, given], "last": [taken]} if mesh[1] > 1 else {"only": []}
    classes = tuple(task_class(name, word, (), [*ports, *more]) for word, more in own.items())
    table = np.full((1, mesh[1]), min(1, len(classes) - 1), np.int64)
    table[0, 0], table[0, -1] = 0, len(classes) - 1
    return Kernel(name, mesh, (), classes, table)


def ring_program(n: int, pairs: Sequence[tuple[int, int]], dtype: DType = INT32) -> CompiledProgram:
    """One kernel `node` with mesh [n] and a stream per pair of task numbers; a class for each different set of ports.

    All of the index maps are constants, so the streams are irregular as far as mesh axes go.
    """
    wires = StreamArray("wires", dtype, (), 2, (max(len(pairs), 1),))
    classes, table = [], np.zeros((n,), np.int64)
    for task in range(n):
        ports = [get(wires, affine(wires.shape, ((0,),), (i,))) for i, pair in enumerate(pairs) if pair[1] == task]
        ports += [put(wires, affine(wires.shape, ((0,),), (i,))) for i, pair in enumerate(pairs) if pair[0] == task]
        table[task] = task
        classes.append(task_class("node", f"c{task}", (), ports))
    kernel = Kernel("node", (n,), (), tuple(classes), table)
    return CompiledProgram("ring", (), (wires,) if pairs else (), (kernel,))


def mesh_program(mesh: Sequence[int], deltas: Sequence[Sequence[int]] = (), dtype: DType = INT16) -> CompiledProgram:
    """A regular mesh: for each delta a stream array from every task `p` to task `p + delta` where both exist.

    Tasks whose sets of neighbours differ are in different classes (as meta conditions would have it); conditions depend
    only on the axes along which a delta runs.
    """
    mesh = tuple(mesh)
    rank = len(mesh)
    arrays = [StreamArray(f"s{i}", dtype, (4,), 2, mesh) for i in range(len(deltas))]
    grid = np.indices(mesh)
    bits = np.zeros(mesh, np.int64)
    for i, delta in enumerate(deltas):
        for j, sign in ((2 * i, -1), (2 * i + 1, 1)):
            inside = np.ones(mesh, bool)
            for axis in range(rank):
                moved = grid[axis] + sign * delta[axis]
                inside &= (moved >= 0) & (moved < mesh[axis])
            bits |= inside.astype(np.int64) << j
    kept = tuple(slice(None) if any(d[axis] for d in deltas) else slice(0, 1) for axis in range(rank))
    values, table = np.unique(bits[kept], return_inverse=True)
    classes = []
    identity = unit(rank, *range(rank))
    for number, value in enumerate(values.tolist()):
        ports = []
        for i, delta in enumerate(deltas):
            if value >> (2 * i) & 1:
                ports.append(get(arrays[i], affine(mesh, identity)))
            if value >> (2 * i + 1) & 1:
                ports.append(put(arrays[i], affine(mesh, identity, delta)))
        classes.append(task_class("cell", f"c{number}", (), ports))
    kernel = Kernel("cell", mesh, (), tuple(classes), table.reshape(bits[kept].shape))
    return CompiledProgram("mesh", (), tuple(arrays), (kernel,), {"mesh": mesh})
