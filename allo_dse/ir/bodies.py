"""Compiling task bodies: from the text the front end writes to functions that the scheduler starts and resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SimulationError
from . import fifo
from .bindings import ir
from .coroutines import find, storage_bytes, structure, to_coroutine
from .dialect import new_context
from .emit import Emitter, function, make_internal
from .jit import TO_LLVM, CompiledModule, run_passes
from .layout import Header
from .outline import NEST, outline_nests
from .runtime import add_runtime
from .signature import Body, Parameter, Signature


@dataclass(frozen=True)
class CompiledBodies:
    """Machine code, and the signature of each body in the order in which they were given."""

    code: CompiledModule
    signatures: tuple[Signature, ...]


def compile_bodies(bodies: Sequence[Body], *, opt_level: int = 3) -> CompiledBodies:
    """Compile bodies together with the scheduler and the table process; body k of the run time is `bodies[k - 1]`.

    Raises:
        SimulationError: with MLIR's message if a text is not valid or cannot be lowered.
    """
    with new_context(), ir.Location.unknown():
        module = ir.Module.create()
        signatures, starts = [], []
        for number, body in enumerate(bodies, 1):
            lowered, signature = lower_body(body, f"body{number}")
            for op in list(lowered.body.operations):
                module.body.append(op.operation)
            signatures.append(signature)
            starts.append(_define_start(module, f"body{number}", signature.parameters))
        add_runtime(module, starts)
        lower_coroutines(module)
        to_llvm(module)
        return CompiledBodies(CompiledModule(module, opt_level=opt_level), tuple(signatures))


def lower_body(body: Body, name: str) -> tuple[Any, Signature]:
    """A module with the body as a coroutine called `name` (helpers get it as prefix), and the body's signature."""
    try:
        module = ir.Module.parse(body.mlir)
    except ir.MLIRError as error:
        raise SimulationError(f"the task body {body.symbol!r} is not valid MLIR: {error}") from error
    main = _rename(module, body.symbol, name)
    outline_nests(module, main.operation)
    structure(module)
    parameters = tuple(_parameter(a) for a in main.regions[0].blocks[0].arguments)
    sites = [ir.IntegerAttr(op.attributes["site"]).value for op in find(main, lambda name: name == "df.cost")]
    to_coroutine(main.operation, [i for i, p in enumerate(parameters) if p.is_stream])
    return module, Signature(body.symbol, parameters, max(sites, default=-1) + 1)


def lower_coroutines(module: Any) -> None:
    """async.coro -> llvm.intr.coro, without the declarations of the async run time, which is not used."""
    run_passes(module, "builtin.module(convert-async-to-llvm)")
    for op in list(module.body.operations):
        if _symbol(op).startswith(("mlirAsyncRuntime", "mlirAsyncRuntim")):
            op.operation.erase()


def to_llvm(module: Any) -> None:
    run_passes(module, TO_LLVM)
    # Set here because the conversion from func.func drops attributes for LLVM. Without presplitcoroutine code
    # generation aborts the process; without noinline nests would go back to where they were outlined from.
    for op in module.body.operations:
        if find(op, lambda name: name == "llvm.intr.coro.begin"):
            _pass_through(op, "presplitcoroutine")
        elif NEST in _symbol(op):
            _pass_through(op, "noinline")


def _pass_through(op: Any, attribute: str) -> None:
    op.operation.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(attribute)])


def _symbol(op: Any) -> str:
    attributes = op.operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""


def _rename(module: Any, symbol: str, name: str) -> Any:
    """Give the module's functions names that are unique in a run; returns the body."""
    main = None
    for op in list(module.body.operations):
        old = _symbol(op)
        new = name if old == symbol else f"{name}_{old}"
        is_external = op.operation.name == "func.func" and not op.operation.regions[0].blocks
        if is_external:
            continue
        ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
        ir.SymbolTable.set_symbol_name(op.operation, new)
        make_internal(op)
        main = op if old == symbol else main
    if main is None:
        raise SimulationError(f"the text of task body {symbol!r} has no function of that name")
    return main


def _parameter(argument: Any) -> Parameter:
    if isinstance(argument.type, ir.MemRefType):
        type_ = ir.MemRefType(argument.type)
        if not type_.has_static_shape:
            raise SimulationError(f"a tensor of a task body has no static shape: {type_}")
        return Parameter("tensor", tuple(type_.shape), storage_bytes(type_.element_type))
    if not isinstance(argument.type, ir.IndexType):
        raise SimulationError(f"a task body has a parameter of type {argument.type}; expected index or memref")
    direct = _stream_uses(argument)
    reached = direct or _reached_uses(argument)
    return Parameter(
        "index",
        gets=any(op.name == "df.take" for op in reached),
        puts=any(op.name == "df.offer" for op in reached),
        computed=not direct and bool(reached),
        token_bytes=max((storage_bytes(op.results[0].type) for op in reached), default=0),
    )


def _stream_uses(value: Any) -> list[Any]:
    return [u.owner.operation for u in value.uses if u.owner.operation.name in ("df.take", "df.offer")]


def _reached_uses(value: Any) -> list[Any]:
    """Stream operations whose stream number is computed from `value` by index arithmetic."""
    found, todo, seen = [], [value], set()
    while todo:
        for use in todo.pop().uses:
            op = use.owner.operation
            if op in seen or not op.name.startswith(("arith.", "df.", "affine.")):
                continue
            seen.add(op)
            if op.name in ("df.take", "df.offer"):
                found.append(op)
            todo += list(op.results)
    return found


def _define_start(module: Any, name: str, parameters: Sequence[Parameter]) -> str:
    """A function (header, node, arguments) that unpacks a task's arguments and calls the body.

    The arguments are words: the first cost site, then the parameters in order.
    """
    ptr = Emitter.pointer_type()
    body = next(op for op in module.body.operations if _symbol(op) == name)
    types = ir.FunctionType(ir.TypeAttr(body.attributes["function_type"]).value).inputs
    op = function(module, f"start_{name}", [ptr, ptr, ptr])
    header, node, arguments = op.arguments
    e = Emitter(op.entry_block)
    costs = e.field(e.load_ptr(header, Header.COSTS), e.load(arguments, 0))
    values, word = [], 1
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
    e.return_()
    return f"start_{name}"
