"""A task body as the flat function that CIRCT makes a circuit of.

    func.func @gemm_t0(%p0: i4, %m0: memref<8xi16>, %m1: memref<1xi16>) { ^bb0: ... cf.br ... }

Memory and streams become ports: every place that loads or stores, and every get or put, has an array argument of its
own (CIRCT allows one load per array), which becomes an address channel and a data channel. A stream is an array of one
element: loading it takes a token, storing it puts one, and either is answered when it is done. A block of the function
is left only when all accesses in it have been answered. So accesses that must not overtake each other are put into
blocks of their own: all stream operations, and accesses to one array of which one is a store, unless the stored value
comes from what was loaded.
"""

from __future__ import annotations

from allo_dse.ir.bindings import arith, ir, memref, scf
from allo_dse.ir.dialect import Get, Put, text_context
from allo_dse.ir.jit import run_passes
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass
from allo_dse.simulator.codegen.lowering.stream_ops import find

from .emitter import Emitter
from .kernel_ports import RtlError, RtlKernel
from .widths import index_width

STRUCTURED = (
    "builtin.module(func.func(convert-linalg-to-loops),fold-memref-alias-ops,func.func(lower-affine),canonicalize,cse)"
)
FLAT = "builtin.module(func.func(convert-scf-to-cf,mem2reg),cse,sccp)"
"""Not canonicalized: CIRCT's circuits get stuck where more than two branches meet in one block. Constants
(`x - x`) are found here, as CIRCT does not lower those that it finds itself."""


def lower_kernel(task_class: TaskClass, mesh: tuple[int, ...], *, overlap: bool = False) -> RtlKernel:
    """Lower the body of a task class.

    Args:
        overlap: let stream operations of one iteration on different streams proceed at the same time. Faster circuits,
            which may get by with less deep streams than the program.

    Raises:
        RtlError: for what the flow cannot do: floating point, polling, variables that live from call to call, vendor
            kernels, streams whose number is computed.
    """
    _check(task_class)
    with text_context():
        module = ir.Module.parse(task_class.body.mlir)
        for op in find(module, lambda name: name in ("df.get_block", "df.put_block")):
            _to_elements(op)
        run_passes(module, STRUCTURED)
        width = index_width(_function(module), mesh)
        run_passes(module, FLAT)
        emitter = Emitter(task_class, len(mesh), width, overlap, _constant_arrays(module))
        return emitter.emit(_function(module))


def _check(task_class: TaskClass) -> None:
    name = f"task class {task_class.name} of {task_class.kernel}"
    if task_class.polls:
        raise RtlError(f"{name} polls its streams", hint="the open RTL flow has get() and put() only")
    if task_class.state or task_class.externals:
        raise RtlError(f"{name} has variables that outlive a call, or vendor kernels", hint="use the simulator")
    if any(isinstance(binding, StreamArray) for binding in task_class.body.streams):
        raise RtlError(f"{name} computes which stream it uses", hint="index streams by the pid only")


def _function(module: ir.Module) -> ir.OpView:
    return next(op for op in module.body.operations if op.operation.name == "func.func")


def _constant_arrays(module: ir.Module) -> dict[str, tuple[int, ...]]:
    """Elements of the module's constant arrays, by symbol."""
    found = {}
    for op in find(module, lambda name: name == "memref.global"):
        values = ir.DenseElementsAttr(op.attributes["initial_value"])
        if not isinstance(ir.ShapedType(values.type).element_type, ir.IntegerType):
            raise RtlError("a constant array is not of integers", hint="integer kernels only")
        found[ir.StringAttr(op.attributes["sym_name"]).value] = tuple(
            int(value) for value in ir.DenseIntElementsAttr(values)
        )
    return found


def _to_elements(op: ir.Operation) -> None:
    """A block is sent and received element by element: circuits have no wide tokens."""
    shape = ir.MemRefType(op.operands[1].type).shape
    stream, buffer = op.operands[0], op.operands[1]
    index = ir.IndexType.get()
    point = ir.InsertionPoint(op)
    counters = []
    for extent in shape:
        with point:
            low, high, one = (arith.ConstantOp(index, value).result for value in (0, extent, 1))
            loop = scf.ForOp(low, high, one)
        with ir.InsertionPoint(loop.body):
            end = scf.YieldOp([])
        counters.append(loop.induction_variable)
        point = ir.InsertionPoint(end)
    with point:
        if op.name == "df.get_block":
            element = ir.MemRefType(buffer.type).element_type
            memref.StoreOp(Get(element, stream, op.attributes["op"]).value, buffer, counters)
        else:
            Put(stream, memref.LoadOp(buffer, counters).result, op.attributes["op"])
    op.erase()
