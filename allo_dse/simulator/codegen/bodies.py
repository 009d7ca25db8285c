"""Compiling task bodies: from the text the front end writes to functions that the scheduler starts and resumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from allo_dse.common.errors import SimulationError
from allo_dse.common.mlir.bindings import Op, arith, ir, nested_ops, scf
from allo_dse.common.mlir.dialect import POLLS, Breathe, Fault, text_context
from allo_dse.common.mlir.jit import TO_LLVM, compile_object, data_layout, pass_through, round_small_floats, run_passes

from ..run_time import fifo
from ..run_time.builder import function, make_internal
from ..run_time.records import Header, Node
from ..run_time.scheduler import RUN, START_BODY, add_bodies_runtime, add_runtime
from .coroutines import is_unrolled, to_coroutine
from .outline import COSTS, NEST, outline_nests, site
from .signature import ANY_TOKEN, Body, CompiledBodies, Parameter, Signature
from .static_steps import LOOPS, Unknown, bounds
from .stream_ops import constant_of, find, reduce_stream_ops, storage_bytes, to_blocks

# Loops that go on for long let compiled code return to Python now and then, for Ctrl-C and time limits.
#
# Short nests stay as they are. A loop with long iterations asks between them; a loop with short iterations is cut into
# pieces first:
#
#     for i = a to b step s:                  for o = a to b step s * n:
#         body                                    df.breathe
#                                                 for i = o to min(o + s * n, b) step s:
#                                                     body


LONG_ROUNDS = 1 << 22
"""Rounds of all loops of a nest, together, that no one waits for: milliseconds."""
PIECE_ROUNDS = 1 << 16
"""Rounds between two checks, whose cost is then negligible."""
PIECE_TURNS = 256
"""Turns of the scheduler that a piece counts as: about as long."""
ASSUMED_TRIPS = 1 << 10
"""Of a loop whose bounds are not constant."""
_DATA = ("memref.load", "affine.load", "df.take", "df.get", "scf.if", "scf.while")
_STREAMS = ("df.get", "df.put", "df.try", "df.take", "df.offer")


def breathe(turns: int) -> None:
    """Add the operation at the present place; it counts as `turns` of the scheduler."""
    Breathe(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), turns))


def _look_into(block: ir.Block) -> None:
    """Add `df.breathe` to the long loops of a block."""
    for op in list(block.operations):
        one = op.operation
        if one.name in LOOPS and not any(op.name.startswith(_STREAMS) for op in nested_ops(one)):
            _treat(one)
        else:
            for region in one.regions:
                for inner in region.blocks:
                    _look_into(inner)


def _treat(loop: ir.Operation) -> None:
    body = loop.regions[0].blocks[0]
    each, trips = _rounds_in(body), _trips(loop)
    if trips is not None and trips * each < LONG_ROUNDS:
        _look_into(body)  # for loops whose bounds are data
    elif each >= PIECE_ROUNDS:
        with ir.InsertionPoint.at_block_begin(body), loop.location:
            breathe(PIECE_TURNS)
        _look_into(body)
    elif loop.name == "scf.for" and not len(loop.results):
        _cut(loop, PIECE_ROUNDS // each)


def _cut(loop: ir.Operation, rounds: int) -> None:
    low, high, step = list(loop.operands)[:3]
    with ir.InsertionPoint(loop), loop.location:
        many = arith.ConstantOp(ir.IndexType.get(), rounds).result
        stride = arith.MulIOp(step, many).result
        pieces = scf.ForOp(low, high, stride)
    with ir.InsertionPoint(pieces.body), loop.location:
        breathe(PIECE_TURNS)
        end = arith.MinSIOp(arith.AddIOp(pieces.induction_variable, stride).result, high).result
        last = scf.YieldOp([])
    loop.move_before(last.operation)
    loop.operands[0], loop.operands[1] = pieces.induction_variable, end


def _rounds_in(block: ir.Block) -> int:
    """Rounds of the loops in a block, together; 1 where there are none."""
    found = 0
    for op in block.operations:
        rounds = sum(_rounds_in(inner) for region in op.regions for inner in region.blocks)
        trips = _trips(op.operation) if op.operation.name in LOOPS else 1
        found += rounds * (ASSUMED_TRIPS if trips is None else trips)
    return max(1, found)


def _trips(loop: ir.Operation) -> int | None:
    """Return a loop's trip count: assumed if its bounds are computed, None if they depend on data."""
    try:
        low, high, step = bounds(loop, {})
    except Unknown:
        return None if _depends_on_data(list(loop.operands)[:3]) else ASSUMED_TRIPS
    return max(0, -((low - high) // step)) if step else ASSUMED_TRIPS


def _depends_on_data(values: Sequence[ir.Value]) -> bool:
    todo, seen = list(values), set()
    while todo:
        owner = todo.pop().owner
        if isinstance(owner, ir.Block) or owner in seen:
            continue
        seen.add(owner)
        if owner.name in _DATA:
            return True
        todo += list(owner.operands)
    return False


# Processors trap on division by zero, and of the smallest number by -1. Hardware gives some value and goes on. Compiled
# code gives the dividend, so that a study that meets such a design does not lose its process.
#
# MLIR's own expansion of floor divisions is wrong beyond 64 bits.


_SIGNED = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi")
_MACHINE_BITS = 64
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")


def guard_divisions(root: ir.Module) -> None:
    """Divide by one wherever a division below `root` could trap."""
    for op in find(root, *_SIGNED, *_UNSIGNED):
        dividend, divisor = op.operands
        known = constant_of(divisor)
        signed = op.name in _SIGNED
        if known is None or known == 0 or (signed and known == -1):
            with ir.InsertionPoint(op):
                op.operands[1] = _safe(dividend, divisor, signed=signed)
        if op.name == "arith.floordivsi" and _width(divisor.type) > _MACHINE_BITS:
            with ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_floor(*op.operands))
            op.erase()


def _floor(dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """The quotient, less one where the remainder is not zero and has the other sign than the divisor."""

    def compare(predicate: arith.CmpIPredicate, value: ir.Value, to: ir.Value) -> ir.Value:
        return arith.CmpIOp(predicate, value, to).result

    zero = _literal(0, divisor.type)
    quotient = arith.DivSIOp(dividend, divisor).result
    remainder = arith.RemSIOp(dividend, divisor).result
    negative = [compare(arith.CmpIPredicate.slt, value, zero) for value in (remainder, divisor)]
    inexact = compare(arith.CmpIPredicate.ne, remainder, zero)
    below = arith.AndIOp(inexact, arith.XOrIOp(*negative).result).result
    return arith.SubIOp(quotient, arith.ExtUIOp(divisor.type, below).result).result


def _safe(dividend: ir.Value, divisor: ir.Value, *, signed: bool) -> ir.Value:
    def equal(value: ir.Value, to: int) -> ir.Value:
        return arith.CmpIOp(arith.CmpIPredicate.eq, value, _literal(to, divisor.type)).result

    traps = equal(divisor, 0)
    if signed:
        smallest = -(1 << (_width(divisor.type) - 1))
        overflows = arith.AndIOp(equal(divisor, -1), equal(dividend, smallest)).result
        traps = arith.OrIOp(traps, overflows).result
    return arith.SelectOp(traps, _literal(1, divisor.type), divisor).result


def _literal(value: int, type_: ir.Type) -> ir.Value:
    return arith.ConstantOp(type_, ir.Attribute.parse(f"{value} : {type_}")).result


def _width(type_: ir.Type) -> int:
    return 64 if isinstance(type_, ir.IndexType) else ir.IntegerType(type_).width


# The attribute `df.check = array<i64: number, position, limit, ...>` of an operation lists indices to check at run
# time: each must be at least 0 and less than its limit. Compiled code reports an index out of range to the run
# (`df.fault`) and uses 0 instead, so that a study that meets such a program does not lose its process.


CHECK = "df.check"
_FIRST_INDEX = {"memref.load": 1, "memref.store": 2, "memref.subview": 1, "arith.addi": 1}
"""Per operation, which operand its first index is."""


def guard_indices(root: ir.Module) -> None:
    """Put the checks that `df.check` asks for before the operations below `root`."""
    for op in find(root, *_FIRST_INDEX):
        if CHECK not in op.attributes:
            continue
        numbers = list(ir.DenseI64ArrayAttr(op.attributes[CHECK]))
        for number, position, limit in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            operand = _FIRST_INDEX[op.name] + position
            with ir.InsertionPoint(op), op.location:
                op.operands[operand] = _checked(op.operands[operand], number, limit)
        del op.attributes[CHECK]


def _checked(index: ir.Value, number: int, limit: int) -> ir.Value:
    wrong = arith.CmpIOp(arith.CmpIPredicate.uge, index, _literal(limit, index.type)).result
    with ir.InsertionPoint(scf.IfOp(wrong).then_block):
        Fault(index, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number))
        scf.YieldOp([])
    return arith.SelectOp(wrong, _literal(0, index.type), index).result


class LoweredBody(NamedTuple):
    """A module with a body as a coroutine.

    Attributes:
        suspends: whether it has to be resumed to begin.
    """

    module: ir.Module
    signature: Signature
    suspends: bool


def compile_bodies(
    bodies: Sequence[Body],
    record: bool,
    *,
    layout: str,
    optimize: bool,
    started: Callable[[tuple[str, ...]], object],
) -> CompiledBodies:
    """Compile bodies, which the code of `compile_runtime` runs.

    Args:
        record: whether they write an event log; runs without it lose nothing.
        layout, optimize: see `compile_object`.
        started: is told the symbols of what is next worked on.

    Raises:
        SimulationError: with MLIR's message if a text is not valid or cannot be lowered.
    """
    with text_context():
        module = ir.Module.create()
        starts: list[str] = []
        lowered = []
        for number, body in enumerate(bodies, 1):
            started((body.symbol,))
            lowered.append(lower_body(body, name := f"body{number}", record, optimize))
            for op in list(lowered[-1].module.body.operations):
                module.body.append(op.operation)
            starts.append(_define_start(module, name, lowered[-1]))
        started(tuple(body.symbol for body in bodies))
        add_bodies_runtime(module, starts, polls=any(b.signature.polls for b in lowered))
        bf16 = any("bf16" in body.mlir for body in bodies)
        code = _machine_code(module, START_BODY, layout, optimize=optimize, bf16=bf16)
        return CompiledBodies(code, tuple(b.signature for b in lowered))


def compile_runtime(record: bool) -> bytes:
    """The scheduler and the table process as an object file; they too write an event log if `record`."""
    with text_context():
        module = ir.Module.create()
        add_runtime(module, record)
        return _machine_code(module, RUN, data_layout())


def _machine_code(module: ir.Module, entry: str, layout: str, *, optimize: bool = True, bf16: bool = False) -> bytes:
    run_passes(module, "builtin.module(convert-async-to-llvm)")
    for op in list(module.body.operations):  # declarations of the async run time, which is not used
        if _symbol(op).startswith("mlirAsyncRuntim"):
            op.operation.erase()
    run_passes(module, TO_LLVM)
    # Set here because the conversion from func.func drops LLVM's attributes. Without presplitcoroutine, code generation
    # aborts the process. Without noinline, nests and moves would be inlined into their callers.
    for op in module.body.operations:
        first = list(op.operation.regions[0].blocks)[:1]
        if any(begin.operation.name == "llvm.intr.coro.begin" for block in first for begin in block.operations):
            pass_through(op, "presplitcoroutine")
        elif NEST in _symbol(op) or fifo.MOVE in _symbol(op):
            pass_through(op, "noinline")
    return compile_object(module, entry, layout, optimize=optimize, bf16=bf16)


def lower_body(body: Body, name: str, record: bool = False, optimize: bool = True) -> LoweredBody:
    """Lower a body to a coroutine `name` (a prefix of its helpers' names)."""
    try:
        module = ir.Module.parse(body.mlir)
    except ir.MLIRError as error:
        raise SimulationError(f"the task body {body.symbol!r} is not valid MLIR: {error}") from error
    main = _rename(module, body.symbol, name)
    guard_divisions(module)
    # Whatever data says, compiled code stays within its arrays and returns to Python now and then.
    guard_indices(module)
    for loop in find(module, "scf.while"):
        with ir.InsertionPoint.at_block_begin(loop.regions[1].blocks[0]), loop.location:
            breathe(1)
    for block in main.regions[0].blocks:
        _look_into(block)
    reduce_stream_ops(module)
    # Copies of an unrolled body that share even their single loops compile sooner, and run slower.
    outline_nests(module, main.operation, 1 if not optimize and is_unrolled(main.operation) else 2)
    to_blocks(module)
    round_small_floats(module, body.mlir)
    parameters = tuple(_parameter(a) for a in main.regions[0].blocks[0].arguments)
    sites = [site(op, "site") for op in find(main, *COSTS)]
    polls = bool(find(main, *POLLS))
    streams = [i for i, p in enumerate(parameters) if p.is_stream]
    suspends = to_coroutine(module, main.operation, streams, record)
    signature = Signature(body.symbol, parameters, max(sites, default=-1) + 1, polls)
    return LoweredBody(module, signature, suspends)


def _symbol(op: Op) -> str:
    attributes = op.operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""


def _rename(module: ir.Module, symbol: str, name: str) -> ir.OpView:
    """Give the module's functions names that are unique in a run; returns the body."""
    main = None
    for op in list(module.body.operations):
        old = _symbol(op)
        new = name if old == symbol else f"{name}_{old}"
        if op.operation.name == "func.func" and not op.operation.regions[0].blocks:  # external
            continue
        ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
        ir.SymbolTable.set_symbol_name(op.operation, new)
        make_internal(op)
        main = op if old == symbol else main
    if main is None:
        raise SimulationError(f"the text of task body {symbol!r} has no function of that name")
    return main


def _parameter(argument: ir.Value) -> Parameter:
    if isinstance(argument.type, ir.MemRefType):
        type_ = ir.MemRefType(argument.type)
        if not type_.has_static_shape:
            raise SimulationError(f"a tensor of a task body has no static shape: {type_}")
        return Parameter("tensor", tuple(type_.shape), storage_bytes(type_.element_type))
    if not isinstance(argument.type, ir.IndexType):
        raise SimulationError(f"a task body has a parameter of type {argument.type}; expected index or memref")
    direct = [u.owner.operation for u in argument.uses if u.owner.operation.name in _GETS + _PUTS]
    reached = direct or _reached_uses(argument)
    return Parameter(
        "index",
        gets=any(op.name in _GETS for op in reached),
        puts=any(op.name in _PUTS for op in reached),
        computed=not direct and bool(reached),
        token_bytes=_token_bytes(reached),
    )


_GETS = ("df.take", "df.try_take", "df.empty")
_PUTS = ("df.offer", "df.try_offer", "df.full")


def _token_bytes(operations: list[ir.Operation]) -> int:
    """Bytes of the tokens that operations move."""
    if not operations:
        return 0
    moved = [storage_bytes(op.results[0].type) for op in operations if op.name not in ("df.empty", "df.full")]
    return max(moved, default=ANY_TOKEN)


def _reached_uses(value: ir.Value) -> list[ir.Operation]:
    """Stream operations whose stream number is computed from `value` by index arithmetic."""
    found, todo, seen = [], [value], set()
    while todo:
        for use in todo.pop().uses:
            op = use.owner.operation
            if op in seen or not op.name.startswith(("arith.", "df.", "affine.")):
                continue
            seen.add(op)
            if op.name in _GETS + _PUTS:
                found.append(op)
            todo += list(op.results)
    return found


def _define_start(module: ir.Module, name: str, lowered: LoweredBody) -> str:
    """A function (header, node, arguments) that unpacks a task's arguments and runs the body until it suspends.

    The arguments are words: the first cost site, then the parameters in order.
    """
    body = next(op for op in module.body.operations if _symbol(op) == name)
    types = ir.FunctionType(ir.TypeAttr(body.attributes["function_type"]).value).inputs
    e, (header, node, arguments) = function(module, f"start_{name}", 3)
    costs = e.field(e.load_ptr(header, Header.COSTS), e.load(arguments, 0))
    values, word = [], 1
    parameters = lowered.signature.parameters
    for parameter, type_ in zip(parameters, types, strict=False):
        if parameter.kind == "index":
            values.append(e.index(e.load(arguments, word)))
        else:
            strides = [e.load(arguments, word + 1 + axis) for axis in range(len(parameter.shape))]
            values.append(e.array(e.load_ptr(arguments, word), type_, strides))
        word += parameter.words
    streams = e.load_ptr(header, Header.STREAMS)
    records = [fifo.record(e, streams, v) for v, p in zip(values, parameters, strict=True) if p.is_stream]
    e.call(name, [*values, header, node, costs, *records])
    if lowered.suspends:
        e.op("llvm.intr.coro.resume", [], e.load_ptr(node, Node.HANDLE))
    e.return_()
    return f"start_{name}"
