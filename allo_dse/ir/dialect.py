"""The `df` dialect: what task bodies say about streams and time.

A task body is a function of structured control flow in which these operations stand. A stream is an `index` value, the
stream's number; `op` is the operation's position in the task class's `stream_ops`.

    %v = "df.get"(%stream) {op = 0} : (index) -> f32                    take a token
    "df.put"(%stream, %v) {op = 1} : (index, f32) -> ()                 add a token
    "df.get_block"(%stream, %buffer) {op = 2} : (index, memref<4x4xi16>) -> ()      copies the token into the buffer
    "df.put_block"(%stream, %buffer) {op = 3} : (index, memref<4x4xi16, strided<[?, ?], offset: ?>>) -> ()
    "df.cost"() {site = 0} : () -> ()                                   the clock advances by the site's cycles

Loops can be pipelined by attributes (see `allo_dse.ir.pipelines`), which lowering turns into

    "df.enter"() {pipeline = 0} : () -> ()      before the loop; df.issue where a round begins, df.leave after the loop

and it reduces the four stream operations to two, whose result is the token itself in the FIFO's memory:

    %token = "df.take"(%stream) {op = 0} : (index) -> memref<f32>       valid until the next stream operation
    %token = "df.offer"(%stream) {op = 1} : (index) -> memref<4x4xi16>  to be filled before the next stream operation
"""

# mypy: disable-error-code="call-arg, misc"
# Annotations are read by `ext` when the classes are made, so they cannot be strings (no `from __future__` import).
import threading
from typing import Any

from .bindings import ext, ir

_LOCK = threading.Lock()


class Df(ext.Dialect, name="df"):
    """The dialect."""


_Operation: Any = Df.Operation


class Get(_Operation, name="get"):
    value: ext.Result[Any]
    stream: ext.Operand[ir.IndexType]
    op: ir.IntegerAttr


class GetBlock(_Operation, name="get_block"):
    stream: ext.Operand[ir.IndexType]
    buffer: ext.Operand[Any]
    op: ir.IntegerAttr


class Put(_Operation, name="put"):
    stream: ext.Operand[ir.IndexType]
    value: ext.Operand[Any]
    op: ir.IntegerAttr


class PutBlock(_Operation, name="put_block"):
    stream: ext.Operand[ir.IndexType]
    buffer: ext.Operand[Any]
    op: ir.IntegerAttr


class Cost(_Operation, name="cost"):
    site: ir.IntegerAttr


class Enter(_Operation, name="enter"):
    pipeline: ir.IntegerAttr


class Issue(_Operation, name="issue"):
    pipeline: ir.IntegerAttr


class Leave(_Operation, name="leave"):
    pipeline: ir.IntegerAttr


class Take(_Operation, name="take"):
    token: ext.Result[Any]
    stream: ext.Operand[ir.IndexType]
    op: ir.IntegerAttr


class Offer(_Operation, name="offer"):
    token: ext.Result[Any]
    stream: ext.Operand[ir.IndexType]
    op: ir.IntegerAttr


def new_context() -> Any:
    """A new MLIR context that knows the dialect."""
    context = ir.Context()
    with _LOCK, context, ir.Location.unknown():
        Df.load()
    return context
