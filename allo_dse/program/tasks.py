"""Task classes: what tasks whose `meta_if` conditions resolve alike do, and the body they share."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from allo_dse.common.aliases import Array
from allo_dse.lang.types import DType

from .index_maps import IndexCheck, IntArray
from .locations import SourceArray, SourceLocation, SourceLoop
from .streams import StreamArray, StreamOp, StreamPort
from .tensors import LayoutUse, TensorPort


class TileUse(Struct, frozen=True):
    """What a tile operation works on.

    Attributes:
        scalars: operands that are single values.
        part_bytes: bytes of the operands that are parts of tiles.
        result_bytes: bytes of the operands that the task has computed.
        sums: whether it adds to a product in the same expression.
        is_new: whether the result is the first thing that an array of the task holds, or part of an array, or what a
            function, other than a sum, makes of what the array holds.
        is_part: whether it is part of an array.
        copy: the iterations of the loops at compile time around it that `meta_if` looks at.
    """

    scalars: int = 0
    part_bytes: int = 0
    result_bytes: int = 0
    sums: bool = False
    is_new: bool = False
    is_part: bool = False
    copy: tuple[int, ...] = ()


NO_TILES = TileUse()


@dataclass(frozen=True)
class TileOp:
    """One unit of work that a cost model prices: a library operation on whole tiles, or a loop of scalar operations.

    Attributes:
        kind: "matmul", "add", "fill", "copy", "exp", ... for tile operations; "loop" for one iteration of a source
            loop; "external" for a vendor kernel.
        shape: (m, k, n) for matmul; the tile's shape otherwise; () for "loop".
        dtypes: operand types, then the result type.
        count: how often a task performs it, or None where that is data-dependent or not the same for all tasks.
        counts: how often each task does, where that follows from its pid; broadcasts against the mesh.
        name: of the vendor kernel, for kind "external".
        use: of a tile operation, what its operands and its result are.
    """

    kind: str
    shape: tuple[int, ...]
    dtypes: tuple[DType, ...]
    count: int | None = 1
    location: SourceLocation | None = None
    name: str = ""
    use: TileUse = NO_TILES
    counts: IntArray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class StateVariable:
    """A variable of a task that keeps its value from one call to the next; a scalar when `shape` is empty.

    Attributes:
        initial: its value before the first call.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    initial: Array = field(compare=False)


class ExternalCall(Struct, frozen=True):
    """A call of a vendor kernel; what it computes is not in the program.

    Attributes:
        top: the name of the vendor kernel's function.
        operands: element type and shape of each argument.
        inputs, outputs: positions of the arguments that are read, and of those that are written.
    """

    top: str
    operands: tuple[tuple[DType, tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    location: SourceLocation | None = None


class TaskBody(Struct, frozen=True):
    """The MLIR function of a task class (see `allo_dse/ir/dialect.py` for the operations it uses).

    Arguments in order: one `index` per mesh axis (the pid); one memref per kernel argument (the task's local tile); one
    memref per entry of `TaskClass.state`; one `index` per entry of `TaskClass.externals` (the address of a C function
    that takes a pointer to each operand, row-major); one `index` per entry of `streams` (the stream's number).

    Attributes:
        mlir: text of one `func.func` whose name is `symbol`; equal text means equal code, however large the mesh.
        streams: what each stream argument is bound to: a port whose index depends only on the pid, or a whole array
            (its first stream's number) where the body computes the index itself.
    """

    symbol: str
    mlir: str
    streams: tuple[StreamPort | StreamArray, ...]


class TaskClass(Struct, frozen=True):
    """Tasks of one kernel whose meta conditions resolve alike.

    Attributes:
        work: what the body does, in order; entry i is priced at cost site i of the body.
        stream_ops: the put and get operations of the source, numbered as in the body.
        state: variables that live from call to call.
        externals: calls of vendor kernels; the i-th is priced by the i-th entry of `work` of kind "external".
        loops: the loops of the source; a loop of the body carries its position here as attribute `df.loop`.
        index_checks: what must be checked when the body runs.
        arrays: what its functions call their arrays.
        loop_arrays: bytes of each local array that is first written element by element.
        layouts: tensor arguments that are only read, or only written, in another layout.
    """

    name: str
    kernel: str
    tensor_ports: tuple[TensorPort, ...]
    stream_ports: tuple[StreamPort, ...]
    work: tuple[TileOp, ...]
    stream_ops: tuple[StreamOp, ...]
    body: TaskBody
    location: SourceLocation | None = None
    state: tuple[StateVariable, ...] = ()
    externals: tuple[ExternalCall, ...] = ()
    loops: tuple[SourceLoop, ...] = ()
    layouts: tuple[LayoutUse, ...] = ()
    index_checks: tuple[IndexCheck, ...] = ()
    arrays: tuple[SourceArray, ...] = ()
    loop_arrays: tuple[int, ...] = ()

    @property
    def used_ports(self) -> list[TensorPort]:
        """The tensor ports that the body reads or writes."""
        return [port for port in self.tensor_ports if port.reads or port.writes]

    @property
    def polls(self) -> bool:
        """Whether what it does depends on how many tokens streams hold: a recorded run cannot be re-timed."""
        return any(not op.blocking for op in self.stream_ops)
