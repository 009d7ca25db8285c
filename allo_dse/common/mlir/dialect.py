"""The `df` dialect: what task bodies say about streams and time.

A task body is a function of structured control flow in which these operations stand. A stream is an `index` value, the
stream's number; `op` is the operation's position in the task class's `stream_ops`.

    %v = "df.get"(%stream) {op = 0} : (index) -> f32                    take a token
    "df.put"(%stream, %v) {op = 1} : (index, f32) -> ()                 add a token
    "df.get_block"(%stream, %buffer) {op = 2} : (index, memref<4x4xi16>) -> ()      copies the token into the buffer
    "df.put_block"(%stream, %buffer) {op = 3} : (index, memref<4x4xi16, strided<[?, ?], offset: ?>>) -> ()
    %v, %ok = "df.try_get"(%stream) {op = 4} : (index) -> (f32, i1)     if there is a token now; else zero and false
    %ok = "df.try_get_block"(%stream, %buffer) {op = 5} : (index, memref<4x4xi16>) -> i1
    %ok = "df.try_put"(%stream, %v) {op = 6} : (index, f32) -> i1       if there is room now
    %ok = "df.try_put_block"(%stream, %buffer) {op = 7} : (index, memref<4x4xi16>) -> i1
    %e = "df.empty"(%stream) {op = 8} : (index) -> i1                   whether try_get would fail; df.full: try_put
    "df.cost"() {site = 0} : () -> ()                                   the clock advances by the site's cycles

An operation with the attribute `df.check` has indices to be checked (by the code that the simulator adds); where one
is wrong,

    "df.fault"(%index) {check = 0} : (index) -> ()      says so; `check` is a position in the class's `index_checks`

In loops whose end data decides on, lowering adds

    "df.cost_times"(%times) {site = 0} : (index) -> ()      the same so many times
    "df.breathe"() {turns = 1} : () -> ()       compiled code returns to Python now and then, for Ctrl-C and time limits

Lowering reduces the stream operations that move tokens to four, whose result is the token itself in the FIFO's memory:

    %token = "df.take"(%stream) {op = 0} : (index) -> memref<f32>       valid until the next stream operation
    %token = "df.offer"(%stream) {op = 1} : (index) -> memref<4x4xi16>  to be filled before the next stream operation
    %token, %ok = "df.try_take"(%stream) {op = 4} : (index) -> (memref<f32>, i1)    df.try_offer likewise
"""

# `ext` reads annotations when the classes are made, so they cannot be strings (no `from __future__` import).
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from .bindings import ext, ir

_LOCK = threading.Lock()
_DEFINITION: list[str] = []
"""The dialect as text, once it is made: to read it takes a quarter of that time."""
MOST_USES = 256
"""Uses of a thread's context."""
DIALECTS = ("arith", "async", "cf", "func", "irdl", "llvm", "memref", "scf")
"""Dialects whose operations Python makes. Parsing and passes load others by themselves; to load all that MLIR has
takes two thirds of the time of making a context."""


class _OfThread(threading.local):
    uses = MOST_USES


_OF_THREAD = _OfThread()


class Df(ext.Dialect, name="df"):
    """The dialect."""


if TYPE_CHECKING:
    _Operation = ext.Operation
else:
    _Operation = Df.Operation
_AnyType: TypeAlias = Any
"""The constraint that every type meets."""


class _OnStream(_Operation):
    stream: ext.Operand[ir.IndexType]
    op: ir.IntegerAttr


class Get(_OnStream, name="get"):
    value: ext.Result[_AnyType]


class GetBlock(_OnStream, name="get_block"):
    buffer: ext.Operand[_AnyType]


class Put(_OnStream, name="put"):
    value: ext.Operand[_AnyType]


class PutBlock(GetBlock, name="put_block"):
    pass


class TryGet(Get, name="try_get"):
    ok: ext.Result[_AnyType]


class TryGetBlock(GetBlock, name="try_get_block"):
    ok: ext.Result[_AnyType]


class TryPut(Put, name="try_put"):
    ok: ext.Result[_AnyType]


class TryPutBlock(TryGetBlock, name="try_put_block"):
    pass


class Empty(_OnStream, name="empty"):
    answer: ext.Result[_AnyType]


class Full(Empty, name="full"):
    pass


class Cost(_Operation, name="cost"):
    site: ir.IntegerAttr


class CostTimes(_Operation, name="cost_times"):
    times: ext.Operand[ir.IndexType]
    site: ir.IntegerAttr


class Fault(_Operation, name="fault"):
    index: ext.Operand[ir.IndexType]
    check: ir.IntegerAttr


class Breathe(_Operation, name="breathe"):
    turns: ir.IntegerAttr


class Take(_OnStream, name="take"):
    token: ext.Result[_AnyType]


class Offer(Take, name="offer"):
    pass


class TryTake(Take, name="try_take"):
    ok: ext.Result[_AnyType]


class TryOffer(TryTake, name="try_offer"):
    pass


POLLS = frozenset(
    {"df.try_get", "df.try_get_block", "df.try_put", "df.try_put_block", "df.empty", "df.full"}
    | {"df.try_take", "df.try_offer"}
)
"""Operations that do not wait, before and after reduction."""


@contextmanager
def text_context() -> Iterator[None]:
    """For work on a module that ends with it: a context of this thread that knows the dialect, and no location.

    Loading dialects into a new context takes ten times as long as most of what is done in one. A context keeps each
    type and attribute that was ever made in it: after many uses there is a new one.
    """
    if _OF_THREAD.uses == MOST_USES:
        _OF_THREAD.context, _OF_THREAD.uses = new_context(), 0
    _OF_THREAD.uses += 1
    with _OF_THREAD.context, ir.Location.unknown():
        yield


def new_context() -> ir.Context:
    """A new MLIR context that knows the dialect."""
    context = ir.Context(load_on_create_dialects=())
    for dialect in DIALECTS:  # without Python's classes, whose import takes longer than all else here
        context.get_dialect_descriptor(dialect)
    with _LOCK, context, ir.Location.unknown():
        if _DEFINITION:
            ext.irdl.load_dialects(ir.Module.parse(_DEFINITION[0]))
        else:
            Df.load()
            _DEFINITION.append(str(Df._mlir_module))
    return context
