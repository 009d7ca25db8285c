"""Streams whose tokens Allo turns into another layout on their way, and the memory tiles that do it.

Vectorised matrix products work on blocks of a few rows and columns. An operand that comes from a stream, and a result
that goes into one, is put into that order by the stream's DMA, which takes more loops than a core's channel has: the
stream passes through a memory tile.

Sources: `allo_opt` in `allo.backend.aie`, `Stream.get_dimensions_to_stream` and `matmul_external_kernel_config_map` in
`allo.backend.aie.utils`, and stream FIFOs in `CodeGenerator.aie_codegen`, commit a098603.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.streams import StreamPort
from allo_dse.program.tasks import TaskClass, TileOp

from ..model.movement import StreamFlow
from .placer import Core
from .transfers import MEMORY_TILE_PORTS

BLOCKS: Mapping[str, Mapping[tuple[str, str], tuple[int, int, int]]] = {
    "xdna1": {
        ("int8", "int8"): (4, 8, 8),
        ("int8", "int16"): (4, 8, 8),
        ("int8", "int32"): (4, 8, 8),
        ("int16", "int16"): (4, 4, 4),
        ("int16", "int32"): (4, 4, 4),
        ("bfloat16", "bfloat16"): (4, 8, 4),
        ("bfloat16", "float32"): (4, 8, 4),
    },
    "xdna2": {
        ("int8", "int8"): (8, 8, 8),
        ("int8", "int16"): (8, 8, 8),
        ("int8", "int32"): (8, 8, 8),
        ("int16", "int16"): (4, 4, 8),
        ("int16", "int32"): (4, 4, 8),
        ("bfloat16", "bfloat16"): (8, 8, 8),
        ("bfloat16", "float32"): (8, 8, 8),
    },
}
"""Rows, depth and columns of a block by operand and result type: the matrix products of mlir-aie's kernel library."""


def turned_streams(program: CompiledProgram, architecture: str) -> Mapping[str, bool]:
    """Stream arrays whose tokens are put into another layout; whether both ends want that, which Allo cannot do.

    What adds products up in the tokens of one array works on their blocks at both ends, and nothing is turned.
    """
    ends: dict[str, set[str]] = {}
    for cls in program.task_classes:
        if products := [op for op in cls.work if op.kind == "matmul" and is_vectorised(op, architecture)]:
            for port in cls.stream_ports:
                if not _accumulates(cls, port) and _is_block_of(cls, port, products):
                    ends.setdefault(port.stream.name, set()).add(port.direction)
    return {name: len(directions) > 1 for name, directions in ends.items()}


def is_vectorised(product: TileOp, architecture: str) -> bool:
    """Whether Allo takes the vectorised kernel: two by two blocks, or four by four, make up the tiles."""
    m, k, n = product.shape
    left, right = str(product.dtypes[0]), str(product.dtypes[1])
    block = BLOCKS.get(architecture, {}).get((left, str(product.dtypes[-1]))) if left == right else None
    if block is None:
        return False
    rows, depth, columns = block
    high = 2 if architecture == "xdna2" or left == "int16" else 4
    wide = high if left == "bfloat16" else 2
    return k % depth == 0 and m % (rows * high) == 0 and n % (columns * wide) == 0


def _accumulates(cls: TaskClass, port: StreamPort) -> bool:
    """Whether the class adds to what it gets, of which it puts the sum: no transpose, products and sums only."""
    return any(op.kind == "add" and op.shape == port.stream.block for op in cls.work)


def _is_block_of(cls: TaskClass, port: StreamPort, products: Sequence[TileOp]) -> bool:
    """Whether tokens are operands of products as they are, or the results that the class ends with."""
    block = port.stream.block
    if port.direction == "get":
        return any(block in (op.shape[:2], op.shape[1:]) and not _is_of_parts(op) for op in products)
    last = next(op for op in reversed(cls.work) if op.kind != "fill")
    return last in products and (last.shape[0], last.shape[2]) == block


def _is_of_parts(product: TileOp) -> bool:
    """Whether both operands are parts of tiles, into which tokens were copied."""
    m, k, n = product.shape
    left, right, _ = product.dtypes
    return product.use.part_bytes == m * k * left.bytes + k * n * right.bytes


def crowded_memory_tile(
    turned: Iterable[StreamFlow], cores: Mapping[int, Core], ports: Sequence[tuple[int, int]]
) -> StreamFlow | None:
    """The first stream that gets no channel of a memory tile; None when there is one for each.

    The tile in the producer's column comes first, then the first that can receive, though it may send by all channels
    already: Allo builds that, and its vendor's tools refuse it.

    Args:
        turned: in the order of Allo's streams.
        ports: channels taken by tensors, per memory tile: sending and receiving.
    """
    taken = [list(own) for own in ports]
    for flow in turned:
        for _ in range(flow.count):
            tile = cores[flow.source][0]
            if MEMORY_TILE_PORTS in taken[tile]:
                free = (n for n, (_, receive) in enumerate(taken) if receive < MEMORY_TILE_PORTS)
                tile = next(free, tile)
            taken[tile] = [count + 1 for count in taken[tile]]
            if max(taken[tile]) > MEMORY_TILE_PORTS:
                return flow
    return None
