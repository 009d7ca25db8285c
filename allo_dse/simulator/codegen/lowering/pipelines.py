"""Pipelined loops of task bodies: what the front end marks, and the operations that stand for it.

A loop with the attributes `df.ii` and `df.depth` is pipelined; they, and `stage` of a stream operation in it, are cost
sites, so that their values are data of a run:

    affine.for %k = 0 to 64 {
      %v = "df.get"(%in) {op = 0, stage = 4} : (index) -> f32
      ...
    } {df.ii = 2, df.depth = 3}

A round begins every ii cycles and takes depth; an operation is due stage cycles after its round begins (0 if it has
none); T6 and T7 of docs/timing.md.
"""

from __future__ import annotations

from allo_dse.common.errors import SimulationError
from allo_dse.ir.bindings import ir
from allo_dse.ir.dialect import POLLS, Enter, Issue, Leave
from allo_dse.ir.nested_ops import nested_ops

from .signature import Pipeline

II, DEPTH, STAGE, PIPELINE, PLACE = "df.ii", "df.depth", "stage", "pipeline", "place"
STREAM_OPS = ("df.get", "df.get_block", "df.put", "df.put_block")
LOOPS = ("affine.for", "scf.for", "scf.while")


def mark_pipelines(function: ir.Operation) -> tuple[Pipeline, ...]:
    """Put `df.enter`, `df.issue` and `df.leave` around pipelined loops, and number the stream operations in them.

    Raises:
        SimulationError: for a pipelined loop that contains another, or one with stream operations, or that polls.
    """
    loops = [op for op in nested_ops(function) if II in op.attributes]
    return tuple(_mark(loop, number) for number, loop in enumerate(loops))


def _mark(loop: ir.Operation, number: int) -> Pipeline:
    inside = nested_ops(loop)
    for op in inside:
        if op.name in POLLS:
            raise SimulationError(
                f"a pipelined loop contains {op.name[3:]}, whose answer depends on the cycle in which it is asked",
                hint="do not pipeline loops that poll streams",
            )
        is_loop = op.name in LOOPS and op != loop
        if is_loop and any(inner.name in STREAM_OPS or II in inner.attributes for inner in nested_ops(op)):
            raise SimulationError(
                "a pipelined loop contains another loop with stream operations", hint="unroll the inner loop first"
            )
    ops = [op for op in inside if op.name in STREAM_OPS]
    i64 = ir.IntegerType.get_signless(64)
    which = ir.IntegerAttr.get(i64, number)
    for place, op in enumerate(ops):
        op.attributes[PIPELINE], op.attributes[PLACE] = which, ir.IntegerAttr.get(i64, place)
    with loop.location:
        with ir.InsertionPoint(loop):
            Enter(which)
        with ir.InsertionPoint.at_block_begin(loop.regions[0].blocks[0]):
            Issue(which)
        with ir.InsertionPoint(loop):
            leave = Leave(which)
        leave.operation.move_after(loop)
    stages = tuple(site(op, STAGE) if STAGE in op.attributes else None for op in ops)
    is_put = tuple(op.name.startswith("df.put") for op in ops)
    return Pipeline(site(loop, II), site(loop, DEPTH), stages, is_put)


def site(op: ir.Operation, name: str) -> int:
    """The value of an integer attribute."""
    return int(ir.IntegerAttr(op.attributes[name]).value)
